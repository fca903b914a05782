"""The rules in CONTRIBUTING.md that a machine can check. Numbers here only go down."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from libs.contracts import flow
from libs.runtime.failpoints import POINTS

ROOT = Path(__file__).parents[2]
CODE = ("services", "libs", "kernels", "cli", "deploy", "bench")
LAYERED = ("services", "libs", "kernels", "protos")  # what pyproject.toml's import contracts cover
GENERATED = ("_pb2.py", "_pb2_grpc.py", "_pb2.pyi")
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
MAX_CONSTRUCTOR_PARAMETERS = 6
SERVICE_FILES = ("README.md", "__main__.py", "config.py")
CARRIERS = {  # modules of the scheduler that wait, send or read: everything else there is a decision
    "__init__",
    "__main__",
    "auditor",
    "background",
    "broker_watch",
    "dead_letters",
    "decision_records",
    "config",
    "event_log",
    "index",
    "intake",
    "loop",
    "metrics",
    "outbox",
    "register",
    "replay",
    "reign",
    "rpc",
    "standby",
    "wait_spans",
}

# In pieces, so that this file does not hold them.
FORBIDDEN = tuple(
    "".join(parts)
    for parts in (
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("pypi", ".org"),
        ("python", "hosted.org"),
        ("hugging", "face.co"),
        ("download.", "pytorch.org"),
        ("ghcr", ".io"),
        ("docker", ".io"),
    )
)
TEXT_SUFFIXES = (".py", ".md", ".toml", ".txt", ".proto", ".yaml", ".yml", ".json", ".sh")


def sources(tops: tuple[str, ...] = CODE) -> Iterator[tuple[Path, str]]:
    """(path below the root, text) of every Python file written by hand."""
    for top in tops:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not path.name.endswith(GENERATED):
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """Every file is parsed for the first test that looks at it, and kept for the others of this module."""
    yield
    parsed.cache_clear()
    nodes.cache_clear()


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(text)))


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(text) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_files_and_functions_fit_on_a_screen_or_two() -> None:
    """No file or function is over its budget; split it where its responsibilities part."""
    over = []
    for path, text in sources((*CODE, "tests")):
        if (lines := text.count("\n")) > MAX_FILE_LINES:
            over.append(f"{path} ({lines})")
        for node in functions(text):
            if (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES:
                over.append(f"{path}:{node.name} ({lines})")
    assert over == []


def test_constructors_take_few_parameters() -> None:
    """A class that needs more than six things to exist does more than one job."""
    over = []
    for path, text in sources():
        for node in functions(text):
            count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - 1
            if node.name == "__init__" and count > MAX_CONSTRUCTOR_PARAMETERS:
                over.append(f"{path}:{node.lineno} ({count})")
    assert over == []


def test_every_module_opens_with_its_job() -> None:
    """The first thing a reader sees is one sentence on what the module is for."""
    without = [str(path) for path, text in sources((*CODE, "tests")) if text and not ast.get_docstring(parsed(text))]
    assert without == []


def test_every_test_states_a_behaviour() -> None:
    """A failing test's docstring tells what no longer holds."""
    silent = [
        f"{path}:{node.name}"
        for path, text in sources(("tests",))
        for node in functions(text)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_every_package_is_regular() -> None:
    """A directory of code without __init__.py makes an import contract pass on nothing."""
    folders = {path.parent for path, _ in sources((*CODE, "tests"))}
    assert sorted(str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()) == []


def test_every_service_has_the_same_files() -> None:
    """Whoever has read one service finds their way in all of them."""
    services = [path for path in sorted((ROOT / "services").iterdir()) if (path / "__init__.py").exists()]
    missing = [
        f"{service.name}/{name}" for service in services for name in SERVICE_FILES if not (service / name).exists()
    ]
    assert len(services) >= 5
    assert missing == []


def test_every_module_of_the_scheduler_is_pure_or_named_here() -> None:
    """A new decision file is added to the contract by hand, so that none escapes it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    pure = next(contract["source_modules"] for contract in contracts if contract["name"] == "Decisions are pure")
    modules = {f"services.scheduler.{path.stem}" for path in (ROOT / "services" / "scheduler").glob("*.py")}

    assert modules - set(pure) == {f"services.scheduler.{name}" for name in CARRIERS}


def test_every_failpoint_is_declared_and_in_one_place() -> None:
    """The matrix of faults iterates over the list; of a point in two places it would test one."""
    calls = [
        node.args[0].value if isinstance(node.args[0], ast.Constant) else ast.unparse(node)
        for _, text in sources()
        for node in nodes(text)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("failpoint", "failpoint_bytes")
    ]

    assert sorted(map(str, calls)) == sorted(POINTS)


def test_every_fault_of_the_table_names_tests_that_are_there() -> None:
    """tests/README.md says where each fault of the catalogue is tested."""
    tests = ROOT / "tests"
    table = (tests / "README.md").read_text(encoding="utf-8").partition("## Faults")[2]
    named = re.findall(r"`(\w+/[\w/]+\.py)(?:::(\w+))?`", table)
    missing = [each for each in named if f"def {each[1]}" not in (tests / each[0]).read_text(encoding="utf-8")]
    assert len(named) > 30 and missing == []


def test_the_readme_draws_every_hop() -> None:
    """Whoever reads the README sees the spans and carriers that the code names."""
    drawn = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [hop for hop in flow.HOPS if hop.span not in drawn or hop.over not in drawn] == []


def test_names_of_spans_and_attributes_are_in_one_module() -> None:
    """OpenTelemetry's for generative AI change still: a new version of them is a change of one file."""
    naming = [str(path) for path, text in sources() if '"gen_ai.' in text]
    assert naming == ["libs/contracts/conventions.py"]


def test_nothing_names_a_machine_or_a_registry() -> None:
    """The project builds anywhere: no path of somebody's machine, no download host."""
    tops = (*CODE, "protos", "tests", "docs", ".ci")
    files = [path for top in tops for path in sorted((ROOT / top).rglob("*")) if path.suffix in TEXT_SUFFIXES]
    files += [
        path for path in sorted(ROOT.iterdir()) if path.is_file() and path.name not in ("LICENSE", ".git")
    ]  # a worktree's .git names a place
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in FORBIDDEN if word in text]
    assert found == []


def test_no_object_comes_out_of_a_file_or_a_socket() -> None:
    """No pickle, no eval, no torch.load: bytes from outside are parsed, never executed."""
    dangerous = {"pickle", "dill", "marshal", "shelve", "cloudpickle"}
    calls = {"eval", "exec", "torch.load", "yaml.load", "os.system"}
    found = []
    for path, text in sources():
        for node in nodes(text):
            if isinstance(node, ast.Import):
                found += [f"{path}: {alias.name}" for alias in node.names if alias.name.split(".")[0] in dangerous]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in dangerous:
                found.append(f"{path}: {node.module}")
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in calls:
                found.append(f"{path}: {ast.unparse(node.func)}()")
    assert found == []


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("services/scheduler/loop.py", "import torch", "The control plane runs without torch"),
        ("services/gateway/__init__.py", "import libs.engine.pool", "The control plane runs without torch"),
        ("services/prefill_worker/prefill.py", "import services.decode_worker", "Services meet only on the wire"),
        ("services/gateway/__init__.py", "import protos.v1.frames_pb2", "Generated code stops at the codec"),
        ("services/tokenizer/__init__.py", "import nats", "One door to NATS and Redis"),
        ("services/scheduler/plan.py", "import time", "Decisions are pure"),
        ("libs/contracts/order.py", "import asyncio", "Decisions are pure"),
        ("libs/engine/tensors.py", "import torch", "Native kernels run without torch"),
        ("kernels/gather_blocks.py", "import libs.contracts", "Kernels know tensors only"),
        ("libs/contracts/errors.py", "import libs.runtime", "Imports point down"),
        ("libs/utils.py", "", "Every package of libs has a layer"),
    ],
)
def test_each_import_contract_bites(tmp_path: Path, module: str, planted: str, contract: str) -> None:
    """A planted violation breaks the contract meant for it: a contract that names no module passes silently."""
    for top in LAYERED:
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert (tmp_path / module).exists() or module == "libs/utils.py"
    with (tmp_path / module).open("a") as file:
        file.write(f"\n{planted}\n")

    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"{contract} BROKEN" in done.stdout, done.stdout + done.stderr
