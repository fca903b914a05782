"""`headrace trace` and `headrace explain`: from the rings of a run directory to a terminal, JSON or a Perfetto file."""

from pathlib import Path
from typing import Any

import msgspec

from cli.control import chosen_run_dir
from cli.waterfall import step_text, waterfall
from deploy.local.run_dir import RunDir
from libs.contracts.errors import HeadraceError
from libs.runtime.ring import read_ring
from libs.timeline.explain import explain
from libs.timeline.perfetto import perfetto
from libs.timeline.shapes import step_shape, trace_shape
from libs.timeline.trace import Store, Trace

STEP_MARK = "#"


class NotTraced(HeadraceError):
    """No ring has records of what was asked for."""

    code = "not_traced"


def read_store(run_dir: RunDir) -> Store:
    """All rings of a run."""
    directories = sorted(run_dir.traces.iterdir()) if run_dir.traces.is_dir() else []
    return Store(segment for directory in directories for segment in read_ring(directory))


def show_trace(name: str, run_dir: Path | None, *, as_json: bool, perfetto_path: Path | None) -> str:
    """`name` is a request's id, a trace id, or worker#step. Raises NotTraced."""
    store = read_store(chosen_run_dir(run_dir))
    worker, mark, number = name.partition(STEP_MARK)
    if mark:
        step = store.step(worker, int(number)) if number.isdigit() else None
        if step is None:
            raise NotTraced(f"no record of step {number} of {worker}")
        return _json(step_shape(store, step)) if as_json else step_text(store, step)
    trace = _find(store, name)
    if perfetto_path is not None:
        perfetto_path.write_bytes(msgspec.json.encode(perfetto(store, trace)))
        return f"wrote {perfetto_path}; open it at ui.perfetto.dev or chrome://tracing\n"
    return _json(trace_shape(store, trace)) if as_json else waterfall(store, trace)


def show_explanation(name: str, run_dir: Path | None) -> str:
    """Raises NotTraced."""
    store = read_store(chosen_run_dir(run_dir))
    return "\n".join(explain(store, _find(store, name))) + "\n"


def _find(store: Store, name: str) -> Trace:
    """The request called so; "last" is the one that ended last."""
    if name == "last" and store.served:
        name = max(store.served, key=lambda served: served.ended_ns).request_id
    trace = store.find(name)
    if trace is None:
        raise NotTraced(f"no record of {name!r}: it was never here, or its records made room for newer ones")
    return trace


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
