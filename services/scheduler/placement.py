"""Where a prompt is computed and where it is decoded.

Hybrid: in the decode worker's own batches. Disaggregated: by a prefill worker that hands it over.
"""

from dataclasses import dataclass

from services.scheduler.choice import Choice
from services.scheduler.poison import runs_alone
from services.scheduler.state import AUTO, DECODE, DISAGGREGATED, HYBRID, PREFILL, Policy, State
from services.scheduler.worker_book import WorkerBook


@dataclass(frozen=True, slots=True)
class Place:
    """The same worker twice under hybrid."""

    prefill: WorkerBook
    decode: WorkerBook


def place(state: State, choice: Choice, cached_blocks: int) -> Place | None:
    """Both ends for a choice of which so many blocks are cached, or None when one end has no worker.

    The decode end is chosen now although it starts later: KV computed with nowhere to decode would only hold memory.
    A choice with almost all of its KV goes on where it decodes.
    """
    if runs_alone(choice):
        idle = next((worker for worker in _ready(state, DECODE) if not (worker.load or worker.leaving)), None)
        return None if idle is None else Place(idle, idle)
    there_tokens = (cached_blocks + len(choice.table)) * state.memory.block_tokens
    compute_tokens = len(choice.ids) - (choice.swapped.tokens if choice.swapped else there_tokens)
    decode = least_loaded_decoder(state)
    is_almost_there = choice.keeps_blocks and choice.generated and compute_tokens <= state.memory.block_tokens
    if is_almost_there and decode is not None:
        return Place(decode, decode)
    if decode is None:
        return None
    mode = state.policy.role
    if mode == HYBRID or (mode == AUTO and not _is_worth_a_hand_over(state.policy, compute_tokens)):
        return Place(decode, decode)
    prefill = _least_queued_prefiller(state)
    if prefill is not None:
        return Place(prefill, decode)
    return None if mode == DISAGGREGATED else Place(decode, decode)


def decoder_of(state: State, choice: Choice) -> WorkerBook | None:
    """Where it is to decode: as was decided at its admission, or, if that one is not ready, wherever there is room."""
    decode = state.workers.get(choice.decode_worker)
    return decode if decode is not None and decode.is_ready else least_loaded_decoder(state)


def least_loaded_decoder(state: State) -> WorkerBook | None:
    """The decode worker with the fewest rows; the first to attach among equals."""
    return min(_ready(state, DECODE), key=lambda worker: worker.load, default=None)


def _least_queued_prefiller(state: State) -> WorkerBook | None:
    return min(_ready(state, PREFILL), key=lambda worker: worker.queued_tokens, default=None)


def _is_worth_a_hand_over(policy: Policy, compute_tokens: int) -> bool:
    return 0 < policy.disaggregate_min_tokens <= compute_tokens


def _ready(state: State, role: str) -> list[WorkerBook]:
    return [
        worker
        for worker in state.workers.values()
        if worker.role == role and worker.is_ready and not worker.isolates and worker.load < worker.max_batch_tokens
    ]
