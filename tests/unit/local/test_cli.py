"""What the command says, and the models it finds."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from typer.testing import CliRunner

from cli import models, output
from cli.main import app
from cli.up import named_models
from libs.contracts.errors import ConfigError
from libs.runtime.failpoints import ACTIONS, POINTS
from tests.fakes.run_state import STATE, run_state

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


def snippet(banner: str) -> str:
    lines = banner.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("  import os") or "from openai" in line)
    return "\n".join(line.removeprefix("  ") for line in lines[start:])


def test_the_banner_tells_how_many_tokens_fit() -> None:
    """Blocks, tokens and memory in one line."""
    assert "3,072 blocks x 16 tokens = 49,152 tokens, 1.1 GiB" in output.banner(STATE)


def test_the_banner_tells_where_grpc_is_spoken() -> None:
    """Nothing where it is not."""
    assert "gRPC: 127.0.0.1:50051 (headrace.v1.Inference)\n" in output.banner(run_state(grpc_address="127.0.0.1:50051"))
    assert "gRPC" not in output.banner(STATE)


@pytest.mark.parametrize("needs_key", [False, True])
def test_the_snippet_is_python(needs_key: bool) -> None:
    """It compiles as printed, and takes the key from the environment where one is needed."""
    banner = output.banner(run_state(needs_key=needs_key))

    compile(snippet(banner), "snippet", "exec")
    assert ("Authorization: Bearer" in banner) == needs_key
    assert ('os.environ["HR_GATEWAY_API_KEY"]' in banner) == needs_key


def test_no_password_is_printed() -> None:
    """The state holds the broker's password, the banner does not."""
    assert STATE.nats_password not in output.banner(STATE)


def test_progress_without_a_terminal_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """The start and the end of a piece of work, however often it reports."""
    with output.progress() as report:
        for done in (0, 0, 1, 2, 3, 3):
            report("services ready", done, 3)

    assert capsys.readouterr().err == "services ready: 0 of 3\nservices ready: 3 of 3\n"


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "~/nowhere"])
def test_a_model_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    """The error names what --model takes."""
    with pytest.raises(ConfigError, match="--model takes"):
        models.resolve_model(name, tmp_path, lambda done, total: None)


def test_a_directory_is_a_model_as_it_is(tmp_path: Path) -> None:
    """Whatever it holds is judged by who reads it."""
    assert models.resolve_model(str(tmp_path), tmp_path / "cache", lambda done, total: None) == tmp_path.resolve()


def test_a_missing_gguf_file_is_one_clear_error(tmp_path: Path) -> None:
    """No traceback, the path in the message."""
    with pytest.raises(ConfigError, match=r"missing\.gguf"):
        models.resolve_model(str(tmp_path / "missing.gguf"), tmp_path, lambda done, total: None)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["up", "--role", "both"], 2, "auto, hybrid, disaggregated"),
        (["up", "--set", "gateway"], 2, "service.key=value"),
        (["up", "--port", "x"], 2, "--port"),
        (["up", "--nonsense"], 2, "--nonsense"),
        (["status", "--run-dir", "/nonexistent"], 1, "nothing runs"),
        (["down", "--run-dir", "/nonexistent"], 0, "nothing runs"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, says: str) -> None:
    """2 for a wrong command, 1 for a failure, 0 where nothing had to be done; always a line that says why."""
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == code, done.output
    assert says in done.output


def test_failpoints_lists_every_point_with_its_meaning() -> None:
    """What can be armed is found without reading code."""
    done = CliRunner().invoke(app, ["failpoints"])

    lines = dict(line.split(maxsplit=1) for line in done.output.splitlines())
    assert done.exit_code == 0
    assert {name: lines[name] for name in POINTS} == dict(POINTS)
    assert lines["actions:"] == ", ".join(ACTIONS)


@pytest.mark.parametrize(("fault", "code"), [(["drown", "nats"], 2), (["kill", "nats"], 1)])
def test_chaos_says_what_is_wrong_in_one_line(tmp_path: Path, fault: list[str], code: int) -> None:
    """2 for a fault that is none, 1 where nothing runs."""
    done = CliRunner().invoke(app, ["chaos", *fault, "--run-dir", str(tmp_path)])

    assert (done.exit_code, len(done.stderr.splitlines())) == (code, 1)


def test_keys_are_added_listed_and_revoked(tmp_path: Path) -> None:
    """Standard output of `add` is the key alone, so that a script can take it; `list` never shows one."""
    file, run = ("--file", str(tmp_path / "keys.json")), CliRunner().invoke
    added = run(app, ["keys", "add", "acme", "--priority", "2", *file])
    listed = run(app, ["keys", "list", *file])
    key, key_id = added.stdout.strip(), listed.stdout.split()[0]

    assert key.startswith("sk-hr-") and " " not in key
    assert "acme" in listed.stdout and key not in listed.stdout
    assert run(app, ["keys", "revoke", key_id, *file]).exit_code == 0
    assert run(app, ["keys", "revoke", key_id, *file]).exit_code == 2
    assert run(app, ["keys", "list", *file]).stdout == ""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), [("a", ()), ("b", ())]),
        (("x",), [("x", ()), ("b", ())]),
        (("x, y", "z"), [("x", ("y",)), ("z", ())]),
    ],
)
def test_a_model_is_called_as_its_directory_or_as_told(
    names: tuple[str, ...], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    """The first name of --served-model-name is the first model's; what follows a comma is an alias."""
    named = named_models([Path("/m/a"), Path("/m/b")], ["a", "b"], names)

    assert [(model.name, model.aliases) for model in named] == expected


@pytest.mark.parametrize("names", [("x", "y"), ("x,",), (",x",)])
def test_names_that_fit_no_model_are_refused(names: tuple[str, ...]) -> None:
    """One more than there are models, or an empty one."""
    with pytest.raises(ConfigError, match="--served-model-name"):
        named_models([Path("/m/a")], ["a"], names)


WANTED = ["config.json", "model-00001-of-2.safetensors", "model.safetensors.index.json", "chat_template.jinja"]
THERE = [*WANTED, "modeling.py", "pytorch_model.bin", "consolidated.safetensors", "original/params.json", "README.md"]


def is_downloaded(name: str, options: dict[str, Any]) -> bool:
    allowed, ignored = (
        any(fnmatch(name, pattern) for pattern in options[which]) for which in ("allow_patterns", "ignore_patterns")
    )
    return allowed and not ignored


@pytest.mark.parametrize(("model", "revision"), [("org/m-1.5", None), ("org/m-1.5@refs/pr/3", "refs/pr/3")])
def test_a_hub_id_is_downloaded_without_code_or_pickles(
    model: str, revision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the revision that it names; it is served under its id, not under its commit's digits."""
    asked: list[Any] = []

    def download(repository: str, **options: Any) -> str:
        asked.append((repository, options))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    assert models.resolve_model(model, tmp_path, lambda done, total: None) == tmp_path
    ((repository, options),) = asked
    assert (repository, options["revision"]) == ("org/m-1.5", revision)
    assert [name for name in THERE if is_downloaded(name, options)] == WANTED
    assert models.served_name(model, tmp_path) == "org/m-1.5"


def test_a_hub_that_is_not_reached_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the model and what to give instead."""

    def fail(repository: str, **options: Any) -> str:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)

    with pytest.raises(ConfigError, match=r"cannot download org/m \(no route to host\); offline, give a directory"):
        models.resolve_model("org/m", tmp_path, lambda done, total: None)
