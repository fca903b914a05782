"""Before a new term grants anything: whoever may still write to the pool for an older one obeys us, or is gone."""

from services.scheduler.events import AskHost, KillWorker, Listed
from services.scheduler.state import Roll, State

HELLO_S = 1.0  # for a listed worker to say Hello before it is ended
START_S = 10.0  # the same while nobody is known to have obeyed an earlier term: all of them are starting


def call(state: State, host: str) -> None:
    """A worker of this host said Hello: ask who else is there, once a term."""
    if host not in state.rolls:
        state.rolls[host] = Roll()
        state.commands.append(AskHost(host))


def listed(state: State, event: Listed, now_s: float) -> None:
    roll = state.rolls.get(event.host)
    if roll is not None and roll.listed_s is None:
        roll.listed_s = now_s
        roll.unheard = set(event.incarnations) - state.workers.keys()


def strike(state: State, incarnation: str) -> None:
    """It said Hello, or is gone."""
    for roll in state.rolls.values():
        roll.unheard.discard(incarnation)


def is_known(state: State) -> bool:
    """Nobody unknown can write to the pool."""
    return not any(roll.listed_s is None or roll.unheard for roll in state.rolls.values())


def is_complete(state: State) -> bool:
    """Nobody unknown can write to the pool, and nobody known does so for an older term."""
    return state.is_open and is_known(state) and not any(worker.has_foreign_work for worker in state.workers.values())


def due_s(state: State, roll: Roll) -> float | None:
    """When those still unheard are to be ended; None while there is nothing to wait for."""
    if roll.listed_s is None or not roll.unheard or roll.is_killing:
        return None
    return roll.listed_s + (HELLO_S if state.is_succession else START_S)


def expire(state: State, now_s: float) -> None:
    for host, roll in state.rolls.items():
        due = due_s(state, roll)
        if due is not None and due <= now_s:
            roll.is_killing = True
            state.counts["unheard_worker"] += len(roll.unheard)
            state.commands += [KillWorker(host, incarnation) for incarnation in sorted(roll.unheard)]
