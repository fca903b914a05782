"""The link between a worker and its scheduler: standing orders down, steps up."""

from dataclasses import dataclass

from libs.contracts.messages.requests import PromptScores, SamplingParams


@dataclass(frozen=True, slots=True)
class HeldSequence:
    """A resident as its worker knows it, in Hello."""

    sequence: int
    request_id: str
    choice: int
    epoch: int
    ids: tuple[int, ...]
    cursor: int
    prompt_tokens: int
    block_table: tuple[int, ...]
    end: str
    until: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    worker: str  # stable name of the service instance
    role: str  # "prefill" | "decode"
    incarnation: str  # 32 hex digits
    host: str
    term: int  # highest term obeyed; 0 at first
    version: int
    pool: str
    pool_blocks: int
    layout_fingerprint: bytes
    numerics_class: str
    model_digest: str
    max_model_len: int
    max_batch_tokens: int
    step_number: int
    residents: tuple[HeldSequence, ...]
    block_tokens: int
    host_pool: str = ""  # the host tier; empty where there is none
    host_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Began:
    """Sent at the step boundary that takes a version, before its step."""

    incarnation: str
    term: int
    version: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that may follow, with its natural-log probability by the raw logits."""

    token_id: int
    logprob: float
    is_end: bool = False  # it would end the sequence


@dataclass(frozen=True, slots=True)
class RowResult:
    """What one resident, or a fork of it, did since its last report."""

    sequence: int
    epoch: int
    cursor: int
    position: int  # of ids[0]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    end: str  # "" | "stop" | "length" | "error" | "dead_end": no token was allowed
    at_until: bool  # stopped by itself: the removal is confirmed
    candidates: tuple[Candidate, ...] = ()  # the likeliest first, equal ones by id
    top_ids: tuple[int, ...] = ()  # equally many for each of `ids`, the likeliest in its place; empty unless asked for
    top_logprobs: tuple[float, ...] = ()
    scores: tuple[PromptScores, ...] = ()  # none or one: of the prompt's ids behind those that this step computed


@dataclass(frozen=True, slots=True)
class RowWait:
    """A row that could not advance. Reported once when it begins (waited_ns = 0) and once when it ends."""

    sequence: int
    epoch: int
    reason: str  # "out_of_grant" | "fill_behind" | "grammar_behind"
    waited_ns: int


@dataclass(frozen=True, slots=True)
class Swapped:
    """A swap item that was carried out."""

    sequence: int
    inward: bool
    blocks: int  # copied; of an outward one those below the commit index
    took_ns: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """Repeat key: (incarnation, step_number). Kept by the worker until Ack."""

    incarnation: str
    term: int
    version: int
    step_number: int
    rows: tuple[RowResult, ...]
    waits: tuple[RowWait, ...]
    removed: tuple[RowResult, ...]  # last cursor and unreported tokens of what this version removed
    copies_done: int
    batch_tokens: int
    started_ns: int
    ended_ns: int
    found: tuple[RowResult, ...] = ()  # where residents really stand: begun by fill counts, or kept by a new term
    swapped: tuple[Swapped, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResults:
    """Consecutive results that travel together, oldest first: plain decode steps, or those before one that is not."""

    results: tuple[StepResult, ...]


@dataclass(frozen=True, slots=True)
class Resync:
    """The hash after a delta differs, or its base is not ours: send a Snapshot."""

    incarnation: str
    term: int
    version: int  # the last version that was right


@dataclass(frozen=True, slots=True)
class Leaving:
    """This worker is told to stop: give what it has to others. Said once a link, until it has nothing left."""

    incarnation: str
    term: int


@dataclass(frozen=True, slots=True)
class Fork:
    """Another choice of a resident's request: its token of position 0 is drawn from the same logits."""

    sequence: int
    choice: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Resident:
    """A sequence added to a worker. It may write from slot `cursor` on; blocks wholly below are read-only."""

    sequence: int  # handle, unique within the term
    request_id: str
    choice: int
    epoch: int
    gateway: str
    ids: tuple[int, ...]  # all known ids, prompt first
    prompt_tokens: int
    cursor: int
    block_table: tuple[int, ...]
    until: int
    params: SamplingParams
    cached_tokens: int
    traceparent: str
    reach: int = 0  # above `cursor`: it begins where the fill counts of its table end, at most here, and tells so
    forks: tuple[Fork, ...] = ()
    candidates: int = 0  # above 0: its step draws nothing and tells so many of the likeliest next tokens


@dataclass(frozen=True, slots=True)
class BlockGrant:
    sequence: int
    block_ids: tuple[int, ...]  # appended to the sequence's table, in order


@dataclass(frozen=True, slots=True)
class Until:
    sequence: int
    until: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """At most `tokens` tokens of this sequence, from the worker's own cursor."""

    sequence: int
    tokens: int


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """The first `tokens` tokens of block `source`, or as many as it has, into `target`, before the step's writes."""

    source: int
    target: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Blocks that travel between the pool and the host tier, pair by pair.

    Outward those below the commit index of `sequence` at this boundary, before Began; without one (0) all of them.
    Inward all, before the step's writes.
    """

    sequence: int
    blocks: tuple[int, ...]
    host_blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole order; opens a term and answers Resync."""

    term: int
    version: int
    residents: tuple[Resident, ...]
    order_hash: bytes
    incarnation: str = ""  # of the worker that is to obey, here and below; the link's end that sends it says so


@dataclass(frozen=True, slots=True)
class Delta:
    """Version v = version v − 1 with these changes, applied in the order of the fields. Items run once, at its step."""

    term: int
    version: int
    removed: tuple[int, ...] = ()
    added: tuple[Resident, ...] = ()
    grants: tuple[BlockGrant, ...] = ()
    untils: tuple[Until, ...] = ()
    copies: tuple[BlockCopy, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    order_hash: bytes = b""
    swap_outs: tuple[Swap, ...] = ()
    swap_ins: tuple[Swap, ...] = ()
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Ack:
    """Every StepResult up to and with this one is applied."""

    term: int
    step_number: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class FencedOff:
    """The worker must exit now."""

    term: int
    reason: str
    incarnation: str = ""


WorkerReport = Hello | Began | StepResult | Resync | Leaving  # what a worker has to say; results may travel together
WorkerMessage = WorkerReport | StepResults
SchedulerMessage = Snapshot | Delta | Ack | FencedOff
