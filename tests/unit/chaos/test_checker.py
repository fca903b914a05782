"""The checker of histories finds each planted violation, and nothing in a sound run."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from libs.contracts.messages import SamplingParams
from tests.chaos.checker import check, check_quiet
from tests.chaos.history import History, Operation, Part, Quiet, load
from tests.chaos.oracle import FAKE_ORACLE
from tests.fakes.engine import expected

PROMPT = (100, 200, 300)
SOUND = Quiet(blocks={"total": 8, "free": 5, "cached": 3}, queued={"requests": 0}, root_spans={"r-0": 1})


def history(stop: str = "") -> History:
    """A sound run of one request of five tokens."""
    run = History("a run", quiet=SOUND)
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
    operation = run.invoke(PROMPT, params, 10.0, stop=(stop,) if stop else ())
    answer = FAKE_ORACLE(operation)
    operation.request_id = "r-0"
    operation.parts = [Part(10.5, answer.ids[:2], answer.text), Part(12.5, answer.ids[2:], "")]
    operation.usage = {"prompt_tokens": 3, "completion_tokens": len(answer.ids)}
    operation.finish_reasons = {0: answer.finish_reason}
    operation.end("ok", 13.0)
    return run


def test_a_sound_run_has_no_violations() -> None:
    """Everything is as in the undisturbed run."""
    assert check(history(), FAKE_ORACLE) == []


def test_a_stop_string_ends_the_answer_with_the_token_that_completed_it() -> None:
    """Text ends before it, ids and usage with it."""
    ids, _ = expected(PROMPT, SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True))
    run = history(stop=f"[{ids[2]}")
    answer = FAKE_ORACLE(run.operations[0])

    assert check(run, FAKE_ORACLE) == []
    assert (answer.ids, answer.text) == (ids[:3], f"[{ids[0]}][{ids[1]}]")
    assert answer.finish_reason == "stop"


def doubled(operation: Operation) -> None:
    operation.parts.append(operation.parts[-1])


def missing(operation: Operation) -> None:
    operation.parts.pop()


def changed(operation: Operation) -> None:
    last = operation.parts[-1]
    operation.parts[-1] = Part(last.at_s, (*last.ids[:-1], last.ids[-1] ^ 1), last.text)


def other_text(operation: Operation) -> None:
    operation.parts.append(Part(13.0, (), "more"))


def counted_wrong(operation: Operation) -> None:
    operation.usage = {"prompt_tokens": 3, "completion_tokens": 6}


def other_reason(operation: Operation) -> None:
    operation.finish_reasons = {0: "stop"}


def ended_twice(operation: Operation) -> None:
    operation.end("fail", 14.0)


def never_ended(operation: Operation) -> None:
    operation.endings, operation.outcome = 0, ""


def failed(operation: Operation) -> None:
    operation.outcome = "fail"


@pytest.mark.parametrize(
    "spoil",
    [doubled, missing, changed, other_text, counted_wrong, other_reason, ended_twice, never_ended, failed],
)
def test_what_a_client_must_never_see_is_found(spoil: Callable[[Operation], None]) -> None:
    """Tokens, text, usage and end are those of the undisturbed run, and there is one end."""
    run = history()

    spoil(run.operations[0])

    assert check(run, FAKE_ORACLE)


def test_a_client_may_see_its_own_gateways_death_but_no_wrong_token() -> None:
    """What was delivered before is a beginning of the right answer."""
    run = history()
    run.may_fail = True
    operation = run.operations[0]
    operation.outcome = "info"
    operation.parts.pop()
    assert check(run, FAKE_ORACLE) == []

    changed(operation)

    assert check(run, FAKE_ORACLE)


def test_a_traceback_is_no_answer() -> None:
    """Nothing of the inside is shown to a client, whatever fails."""
    run = history()
    run.may_fail = True
    operation = run.operations[0]
    operation.outcome, operation.error = "fail", 'Traceback (most recent call last):\n  File "/srv/x.py"'

    assert check(run, FAKE_ORACLE)


def test_two_answers_under_one_id_are_found() -> None:
    """A request id names one request."""
    run = history()
    run.operations.append(run.operations[0])

    assert any("twice" in problem for problem in check(run, FAKE_ORACLE))


@pytest.mark.parametrize(
    "left",
    [
        {"blocks": {"total": 8, "free": 5, "cached": 2}},
        {"blocks": {"total": 8, "free": 5, "cached": 2, "held": 1}},
        {"blocks": {"total": 8, "free": 5, "cached": 2, "freeing": 1}},
        {"waiting": 1},
        {"running": 1},
        {"queued": {"sequences": 1}},
        {"strangers": ("123 python",)},
        {"shared_files": ("/dev/shm/x",)},
        {"corruptions": ("block 3",)},
        {"violations": ("position 3",)},
        {"root_spans": {"r": 2}},
        {"root_spans": {"r": 0}},
    ],
)
def test_what_a_stack_at_rest_must_not_have_is_found(left: dict[str, object]) -> None:
    """Blocks, requests, messages, processes, files, spans."""
    assert check_quiet(SOUND) == []
    assert check_quiet(msgspec.structs.replace(SOUND, **left))


def test_a_run_that_never_came_to_rest_is_found() -> None:
    """Nothing can be said of what it left."""
    run = history()
    run.quiet = None

    assert check(run, FAKE_ORACLE)


def test_the_longest_stall_counts_the_first_wait_and_the_last() -> None:
    """From the invocation to the first part, between parts, and to the end."""
    assert history().operations[0].longest_stall_s == 2.0


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    """What failed once can be looked at again."""
    run = history()

    assert load(run.save(tmp_path)) == run


def test_each_choice_is_held_against_the_same_request_alone() -> None:
    """With its own seed; a wrong token of any of them is found, and so is a wrong sum."""
    run = History("choices", quiet=SOUND)
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=5, ignore_eos=True)
    operation = run.invoke(PROMPT, params, 10.0, choices=2)
    operation.request_id, total = "r-0", 0
    for index in range(2):
        answer = FAKE_ORACLE(operation.choice(index))
        assert answer.ids == expected(PROMPT, params, index)[0]
        operation.parts.append(Part(10.5, answer.ids, answer.text, index))
        operation.finish_reasons[index] = answer.finish_reason
        total += len(answer.ids)
    operation.usage = {"prompt_tokens": 3, "completion_tokens": total}
    operation.end("ok", 13.0)
    assert check(run, FAKE_ORACLE) == []

    operation.usage = {"prompt_tokens": 3, "completion_tokens": total + 1}
    assert len(check(run, FAKE_ORACLE)) == 2
    operation.usage = {"prompt_tokens": 3, "completion_tokens": total}
    operation.parts[1] = Part(10.5, (9, *operation.parts[1].ids[1:]), operation.parts[1].text, 1)
    assert [problem.partition(":")[2] for problem in check(run, FAKE_ORACLE)] == [
        " ids: 5 tokens, 5 wanted, different from position 0 on"
    ]
