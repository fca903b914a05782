"""Log lines carry an event and its fields, and nobody can fake one."""

import json
import logging
from collections.abc import Iterator

import pytest

from libs.runtime.logs import get_logger, setup_logs


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Leave the process's logging as it was found."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_line_has_the_event_its_fields_and_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    """What is always there, what belongs to the event, one line."""
    setup_logs("info", "json", service="gateway")

    get_logger("door").info("accepted", request_id="r1", tokens=3)

    line = json.loads(capsys.readouterr().err)
    assert {"level": "info", "log": "door", "event": "accepted", "service": "gateway"}.items() <= line.items()
    assert (line["request_id"], line["tokens"]) == ("r1", 3)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_value_cannot_start_a_line_of_its_own(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Newlines and terminal codes in a field are escaped."""
    setup_logs("info", form)

    get_logger("door").info("refused", model="x\nfake line\x1b[31m")

    written = capsys.readouterr().err
    assert written.count("\n") == 1 and "\x1b" not in written and "fake line" in written


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Debug lines cost nothing and say nothing at level info."""
    setup_logs("info", "text")

    get_logger("door").debug("step")

    assert capsys.readouterr().err == ""


def test_an_error_may_bring_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON it is one field of the same line."""
    setup_logs("info", "json")

    try:
        raise ValueError("broken")
    except ValueError as error:
        get_logger("door").error("failed", exc_info=error)

    written = capsys.readouterr().err
    assert written.count("\n") == 1 and "ValueError: broken" in json.loads(written)["traceback"]


def test_an_exporter_that_fails_again_and_again_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A collector that is away does not fill the log; our own messages are all written."""
    setup_logs("info", "text")

    for _ in range(3):
        logging.getLogger("opentelemetry.exporter").error("cannot export")
        get_logger("door").error("ours")

    written = capsys.readouterr().err
    assert (written.count("cannot export"), written.count("ours")) == (1, 3)
