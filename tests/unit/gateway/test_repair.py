"""When missing tokens are asked for again."""

from services.gateway.repair import FIRST_PACE_S, LONGEST_PAUSE_S, Repair


def test_a_gap_is_given_a_moment_to_close() -> None:
    """A frame that was overtaken comes within 100 ms; then it counts as lost."""
    repair = Repair(0.0)
    repair.heard(1.0)

    assert not repair.due(1.05, has_gap=True)
    assert not repair.due(1.10, has_gap=True)
    assert repair.due(1.16, has_gap=True)


def test_a_known_end_does_not_wait() -> None:
    """Finished shows that tokens are missing: ask at once."""
    repair = Repair(0.0)
    repair.heard(1.0)
    repair.hurry()

    assert repair.due(1.0, has_gap=True)


def test_one_question_at_a_time_and_fewer_when_they_bring_nothing() -> None:
    """No second question before the answer; each fruitless one doubles the pause, up to a limit."""
    repair, now_s, pauses_s = Repair(0.0), 1.0, []
    repair.hurry()
    for _ in range(10):
        assert repair.due(now_s, has_gap=True)
        repair.asked()
        assert not repair.due(now_s + 100, has_gap=True)
        repair.answered(now_s, has_gap=True)
        pause_s = next(step / 10 for step in range(1000) if repair.due(now_s + step / 10, has_gap=True))
        pauses_s.append(pause_s)
        now_s += pause_s

    assert pauses_s[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(pauses_s) == LONGEST_PAUSE_S


def test_silence_is_measured_by_the_streams_own_pace() -> None:
    """Half a second, or ten times the usual gap where that is longer."""
    fast, slow = Repair(0.0), Repair(0.0)
    for step in range(3):
        fast.heard(1 + step * 0.01)
        slow.heard(1 + step * 0.2)

    assert not fast.due(1.02 + 0.45, has_gap=False)
    assert fast.due(1.02 + 0.55, has_gap=False)
    assert not slow.due(1.4 + 1.9, has_gap=False)
    assert slow.due(1.4 + 2.1, has_gap=False)


def test_a_queued_prompt_may_be_silent_for_long() -> None:
    """Before the first token nothing is known to be missing."""
    repair = Repair(0.0)

    assert not repair.due(9.9 * FIRST_PACE_S, has_gap=False)
    assert repair.due(10.1 * FIRST_PACE_S, has_gap=False)


def test_new_tokens_start_the_count_again() -> None:
    """The gap that was repaired and the pauses before are forgotten."""
    repair = Repair(0.0)
    repair.hurry()
    repair.asked()
    repair.heard(1.0)
    repair.answered(1.0, has_gap=False)

    assert not repair.due(1.3, has_gap=True)
    assert repair.due(1.61, has_gap=True)
