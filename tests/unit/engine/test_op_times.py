"""The native kernels tell where the time of a step goes, and compute the same bits while they do."""

import time
from typing import Any

import pytest

from libs.contracts.messages import SamplingParams
from libs.engine.engine_spec import OpenEngine
from libs.engine.native.kernels import Kernels
from libs.engine.rows import Sampled, SampleSpec, StepRow
from tests.engines import opened, settled
from tests.unit.engine.tiny_model import write_model

PROMPT = [(7 * i + 3) % 127 for i in range(200)]
SPEC = SampleSpec(SamplingParams(temperature=0.0, logprobs=0), 0, 0, ())


@pytest.fixture(scope="module", params=(1, 2))
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OpenEngine:
    model_dir = write_model(tmp_path_factory.mktemp("tiny") / "model")
    return opened(settled("native"), model_dir, "bfloat16", blocks=16, threads=request.param)


def steps(engine: OpenEngine) -> list[Sampled | None]:
    """A chunk, then a few tokens one by one."""
    drawn = engine.engine.step([StepRow(PROMPT, 0, range(16), SPEC)])
    for n in range(20):
        drawn += engine.engine.step([StepRow([5 + n], len(PROMPT) + n, range(16), SPEC)])
    return drawn


def test_the_ops_of_a_step_add_up_to_the_time_of_its_call(engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """95 % at least: what is left is the way there and back, and the checks before anything is written."""
    kernels, took_ns = engine.op_times, 0
    assert isinstance(kernels, Kernels)
    step = kernels.step

    def timed(*arguments: Any) -> None:
        nonlocal took_ns
        began_ns = time.monotonic_ns()
        step(*arguments)
        took_ns += time.monotonic_ns() - began_ns

    monkeypatch.setattr(kernels, "step", timed)
    shares = []
    for _ in range(5):
        took_ns = 0
        kernels.watch()
        engine.engine.step([StepRow(PROMPT, 0, range(16), SPEC)])
        shares.append(sum(kernels.unwatch().values()) / took_ns)

    assert 0.95 <= max(shares) <= 1.0, shares


def test_every_op_of_a_layer_is_told_by_its_name(engine: OpenEngine) -> None:
    """A step of one token prepares its norms inside the products; one of many does so apart."""
    assert engine.op_times is not None
    engine.op_times.watch()
    steps(engine)

    times = engine.op_times.unwatch()

    products = {"qkv", "rope_kv", "attention", "o", "gate_up", "down"}
    assert {name for name, op_ns in times.items() if op_ns > 0} >= {
        *products, "prepare", "embedding", "norm", "head", "sample", "publish",
    }  # fmt: skip


def test_who_is_watched_computes_the_same_bits(engine: OpenEngine) -> None:
    """And what is not watched is not counted."""
    assert engine.op_times is not None
    before = steps(engine)
    engine.op_times.watch()
    during = steps(engine)
    counted = engine.op_times.unwatch()
    after = steps(engine)
    engine.op_times.watch()

    assert before == during == after
    assert sum(counted.values()) > 0
    assert sum(engine.op_times.unwatch().values()) == 0
