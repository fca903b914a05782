"""A request that workers die of stops after three, and takes nobody with it at last."""

from libs.contracts.messages import Began, Failed
from services.scheduler.state import DECODE
from tests.fakes.engine import expected
from tests.unit.scheduler.cell import Cell, disaggregated, hybrid, params, prompt

SAMPLING = params(40)


def die_of(cell: Cell, request_id: str) -> None:
    """The worker that computes it dies in the step that follows, and another life of it begins."""
    choice = cell.choice(request_id)
    worker = cell.workers[choice.worker]
    worker.on_frame = lambda resident, row: None
    while choice.handle not in worker.residents._held:
        cell.turn(*[message for message in worker.boundary() if isinstance(message, Began)])
    cell.replace(worker)


def test_the_third_death_alone_is_poison() -> None:
    """A typed error that says not to try again, and a letter to the operator without the prompt."""
    cell = hybrid()
    cell.submit("r", prompt(20), SAMPLING)
    for _ in range(3):
        cell.run(lambda: bool(cell.choice("r").worker) and cell.choice("r").generated == 5)
        die_of(cell, "r")
    [failed] = cell.told
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.retryable) == ("poison", False)
    [letter] = cell.dead_letters
    assert (letter.request_id, letter.deaths, letter.prompt_tokens, letter.generated_tokens) == ("r", 3, 20, 5)
    assert cell.state.counts["failed_poison"] == 1
    cell.answer("r", live=True)
    assert cell.is_clean


def test_the_count_restarts_beyond_where_a_worker_died() -> None:
    """Three unlucky places are no poison."""
    cell = hybrid()
    cell.submit("r", prompt(20), SAMPLING)
    for generated in (5, 8, 11, 14, 17):
        cell.run(lambda at=generated: cell.choice("r").generated == at)  # type: ignore[misc]
        die_of(cell, "r")
    cell.run()
    assert cell.log("r") == expected(prompt(20), SAMPLING)[0]


def test_a_suspect_runs_alone_until_it_is_cleared() -> None:
    """Its neighbours go to other workers, or wait; then they come back."""
    cell = hybrid()
    for name, first in (("a", 100), ("b", 300)):
        cell.submit(name, prompt(20, first), SAMPLING)
    for _ in range(2):
        cell.run(lambda: bool(cell.choice("b").worker) and cell.choice("b").generated == 5)
        die_of(cell, "b")
    assert [cell.choice(name).deaths for name in ("a", "b")] == [2, 2]
    assert cell.choice("a").worker and not cell.choice("b").worker
    assert cell.choice("b").reason.value == "suspected"
    cell.run(lambda: cell.choice("a").deaths == 0 and cell.choice("a").generated > 8)
    cell.submit("c", prompt(20, 500), SAMPLING)
    cell.add_worker("decode-9", DECODE)
    cell.run()
    for name, first in (("a", 100), ("b", 300), ("c", 500)):
        assert cell.log(name) == expected(prompt(20, first), SAMPLING)[0]


def test_several_suspects_take_turns_and_then_run_together() -> None:
    """Each is alone for as long as it takes to get past where the workers died, not to its end."""
    cell = hybrid()
    names = ("a", "b", "c")
    for number, name in enumerate(names):
        cell.submit(name, prompt(20, 100 + 200 * number), SAMPLING)
    for _ in range(2):
        cell.run(lambda: all(cell.choice(name).worker and cell.choice(name).generated >= 5 for name in names))
        die_of(cell, "b")
    assert [cell.choice(name).deaths for name in names] == [2, 2, 2]
    [worker] = cell.workers.values()
    cell.run(lambda: not any(cell.choice(name).deaths for name in names))
    assert {rows for _, rows in worker.took} <= {0, 1} and len(worker.took) < 20
    cell.run()
    assert max(rows for _, rows in worker.took) == 3 and len(worker.took) < 65
    for number, name in enumerate(names):
        assert cell.log(name) == expected(prompt(20, 100 + 200 * number), SAMPLING)[0]
        assert cell.deliver(name)
    assert cell.is_clean


def test_a_suspect_is_not_blamed_for_who_gives_way_to_it() -> None:
    """The worker dies before those that leave it for the suspect have left."""
    cell = hybrid()
    for name, first in (("a", 100), ("b", 300)):
        cell.submit(name, prompt(20, first), SAMPLING)
    for _ in range(2):
        cell.run(lambda: bool(cell.choice("b").worker) and cell.choice("b").generated == 5)
        die_of(cell, "b")
    [worker] = cell.workers.values()
    cell.run(lambda: cell.choice("a").leaving)
    assert cell.choice("b").deaths == 2 and not cell.choice("b").worker
    cell.replace(worker)
    assert cell.choice("b").deaths == 2
    cell.run()
    for name, first in (("a", 100), ("b", 300)):
        assert cell.log(name) == expected(prompt(20, first), SAMPLING)[0]


def test_who_is_prefilled_for_a_suspects_worker_is_decoded_elsewhere_or_later() -> None:
    """It was to go on where the suspect is alone now."""
    cell = disaggregated()
    cell.submit("b", prompt(20, 300), SAMPLING)
    for _ in range(2):
        cell.run(lambda: bool(cell.choice("b").worker) and cell.choice("b").generated == 5)
        cell.gateway_answers = not cell.choice("b").deaths
        die_of(cell, "b")
    cell.submit("c", prompt(200, 500), SAMPLING)
    assert cell.choice("c").decode_worker and not cell.choice("b").worker
    cell.gateway_answers = True
    cell.turn()
    assert not cell.choice("c").decode_worker and cell.choice("c").worker
    cell.run()
    for name, ids in (("b", prompt(20, 300)), ("c", prompt(200, 500))):
        assert cell.log(name) == expected(ids, SAMPLING)[0]
        assert cell.deliver(name)
    assert cell.is_clean


def test_what_was_sent_may_have_been_begun() -> None:
    """A worker that dies at once has no time to say so; else such a request would kill workers without end."""
    cell = hybrid()
    cell.run()
    cell.submit("r", prompt(20), SAMPLING)
    cell.replace(next(iter(cell.workers.values())))
    assert cell.choice("r").deaths == 1
