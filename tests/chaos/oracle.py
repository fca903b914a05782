"""What an undisturbed run of the fake engine answers, computed from its definition alone."""

from tests.chaos.history import Answer, Operation, Oracle
from tests.fakes.engine import expected
from tests.fakes.tiny_model import shown_bytes


def fake_answer(operation: Operation) -> Answer:
    """The end of turn and stop ids are counted and never shown; a stop string ends the text before it."""
    ids, reason = expected(operation.prompt_ids, operation.params)
    shown = ids[:-1] if reason == "stop" else ids
    for count in range(1, len(shown) + 1):
        text = _text(shown[:count])
        found = [place for stop in operation.stop if (place := text.find(stop)) >= 0]
        if found:
            return Answer(ids[:count], "stop", text[: min(found)])
    return Answer(ids, reason, _text(shown))


def _text(ids: tuple[int, ...]) -> str:
    return b"".join(map(shown_bytes, ids)).decode("utf-8", "replace")


FAKE_ORACLE: Oracle = fake_answer
