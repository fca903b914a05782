"""What a tenant may not take although nobody else wants it yet: else who comes next waits for the end of a long answer.

For each other tenant as many places are kept as it could use lately, up to an equal part. Beyond that a tenant may have
KEPT_RATIO times as many places, and as many blocks, as are left (Choudhury and Hahne, "Dynamic Queue Length
Thresholds", 1998): of a cell that nobody else uses seven eighths. Where there never was another tenant it has
everything.

Who comes next waits for the end of a step, too. So while one tenant floods and another does not, chunks of its prompts
are short, and it gets a place only while all rows and such a chunk fit into a short step.
"""

from collections import Counter

from services.scheduler.choice import Choice
from services.scheduler.chunk_size import SWIFT_TOKENS, Pace
from services.scheduler.lately import Lately
from services.scheduler.reasons import Reason
from services.scheduler.state import DECODE, State

KEPT_RATIO = 7


def hold(state: State, choice: Choice, now_s: float) -> bool:
    """Pass over all that its tenant has waiting in its class, if it has its part."""
    if len(state.queue.tenants) < 2:
        return False
    tenant, places = choice.sequence.tenant, _places(state)
    state.wanted.setdefault(tenant, Lately(now_s)).note(places[tenant] + choice.share.waiting, now_s)
    if not _is_full(state, choice, places, now_s):
        return False
    choice.explain(Reason.TENANT_FULL, now_s)
    state.queue.hold(choice)
    return True


def release(state: State, now_s: float) -> None:
    """Look again at tenants that were passed over and have room now."""
    held = state.queue.held()
    places = _places(state) if held else Counter()
    for choice in held:
        if not _is_full(state, choice, places, now_s):
            state.queue.release(choice)


def flooding(state: State, now_s: float) -> set[str]:
    """Tenants that could use more than an equal part of the places lately; none where all could."""
    return _floods(*_wants(state, now_s))


def _floods(wants: dict[str, int], part: int) -> set[str]:
    floods = {tenant for tenant, most in wants.items() if most > part}
    return floods if len(floods) < len(wants) else set()


def _wants(state: State, now_s: float) -> tuple[dict[str, int], int]:
    """How many places each tenant could use lately, and an equal part of all."""
    wants = {tenant: most for tenant, lately in state.wanted.items() if (most := lately.most(now_s))}
    return wants, state.policy.max_running // max(1, len(wants))


def _places(state: State) -> Counter[str]:
    """Of each tenant, with those that its choices will need from their first token on."""
    places: Counter[str] = Counter()
    for choice in state.running.values():
        places[choice.sequence.tenant] += 1 + len(choice.forks)
    return places


def _is_full(state: State, choice: Choice, places: Counter[str], now_s: float) -> bool:
    """Whether its tenant has to wait for the end of a request of its own."""
    tenant = choice.sequence.tenant
    own = places[tenant]
    left = state.policy.max_running - places.total()
    if choice.was_admitted or not own or left <= 0:
        return False
    wants, part = _wants(state, now_s)
    kept = sum(max(0, min(most, part) - places[other]) for other, most in wants.items() if other != tenant)
    if left <= kept or own >= KEPT_RATIO * left or _takes_blocks(state, choice):
        return True
    return tenant in _floods(wants, part) and places.total() >= _swift_rows(state)


def _swift_rows(state: State) -> float:
    """As many as decode beside a short chunk in a short step."""
    decoders = (worker for worker in state.workers.values() if worker.role == DECODE and worker.is_ready)
    return sum(worker.chunk_sizes.of(Pace.SWIFT).tokens - SWIFT_TOKENS for worker in decoders)


def _takes_blocks(state: State, choice: Choice) -> bool:
    """Whether with this one its tenant would have more than its part of the pool."""
    memory, tenant = state.memory, choice.sequence.tenant
    needs_blocks = memory.blocks_for(min(len(choice.ids) + 1, choice.slots))
    own_blocks = sum(len(other.table) for other in state.running.values() if other.sequence.tenant == tenant)
    left_blocks = memory.pool.total_blocks - memory.pool.held_blocks - needs_blocks
    return own_blocks + needs_blocks > KEPT_RATIO * left_blocks
