from protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeldSequence(_message.Message):
    __slots__ = ("sequence", "request_id", "choice", "epoch", "ids", "cursor", "prompt_tokens", "block_table", "end", "until", "cached_tokens")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TABLE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    request_id: str
    choice: int
    epoch: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    cursor: int
    prompt_tokens: int
    block_table: _containers.RepeatedScalarFieldContainer[int]
    end: str
    until: int
    cached_tokens: int
    def __init__(self, sequence: _Optional[int] = ..., request_id: _Optional[str] = ..., choice: _Optional[int] = ..., epoch: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., cursor: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., block_table: _Optional[_Iterable[int]] = ..., end: _Optional[str] = ..., until: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker", "role", "incarnation", "host", "term", "version", "pool", "pool_blocks", "layout_fingerprint", "numerics_class", "model_digest", "max_model_len", "max_batch_tokens", "step_number", "residents", "block_tokens", "host_pool", "host_blocks")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    POOL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_CLASS_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESIDENTS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HOST_POOL_FIELD_NUMBER: _ClassVar[int]
    HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    role: str
    incarnation: str
    host: str
    term: int
    version: int
    pool: str
    pool_blocks: int
    layout_fingerprint: bytes
    numerics_class: str
    model_digest: str
    max_model_len: int
    max_batch_tokens: int
    step_number: int
    residents: _containers.RepeatedCompositeFieldContainer[HeldSequence]
    block_tokens: int
    host_pool: str
    host_blocks: int
    def __init__(self, worker: _Optional[str] = ..., role: _Optional[str] = ..., incarnation: _Optional[str] = ..., host: _Optional[str] = ..., term: _Optional[int] = ..., version: _Optional[int] = ..., pool: _Optional[str] = ..., pool_blocks: _Optional[int] = ..., layout_fingerprint: _Optional[bytes] = ..., numerics_class: _Optional[str] = ..., model_digest: _Optional[str] = ..., max_model_len: _Optional[int] = ..., max_batch_tokens: _Optional[int] = ..., step_number: _Optional[int] = ..., residents: _Optional[_Iterable[_Union[HeldSequence, _Mapping]]] = ..., block_tokens: _Optional[int] = ..., host_pool: _Optional[str] = ..., host_blocks: _Optional[int] = ...) -> None: ...

class Began(_message.Message):
    __slots__ = ("incarnation", "term", "version")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    term: int
    version: int
    def __init__(self, incarnation: _Optional[str] = ..., term: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("token_id", "logprob", "is_end")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    IS_END_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    is_end: bool
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., is_end: _Optional[bool] = ...) -> None: ...

class RowResult(_message.Message):
    __slots__ = ("sequence", "epoch", "cursor", "position", "ids", "logprobs", "end", "at_until", "candidates", "top_ids", "top_logprobs", "scores")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    AT_UNTIL_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TOP_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    epoch: int
    cursor: int
    position: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    end: str
    at_until: bool
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    top_ids: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    scores: _containers.RepeatedCompositeFieldContainer[_common_pb2.PromptScores]
    def __init__(self, sequence: _Optional[int] = ..., epoch: _Optional[int] = ..., cursor: _Optional[int] = ..., position: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., end: _Optional[str] = ..., at_until: _Optional[bool] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., top_ids: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ..., scores: _Optional[_Iterable[_Union[_common_pb2.PromptScores, _Mapping]]] = ...) -> None: ...

class RowWait(_message.Message):
    __slots__ = ("sequence", "epoch", "reason", "waited_ns")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITED_NS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    epoch: int
    reason: str
    waited_ns: int
    def __init__(self, sequence: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ..., waited_ns: _Optional[int] = ...) -> None: ...

class Swapped(_message.Message):
    __slots__ = ("sequence", "inward", "blocks", "took_ns")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INWARD_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOOK_NS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    inward: bool
    blocks: int
    took_ns: int
    def __init__(self, sequence: _Optional[int] = ..., inward: _Optional[bool] = ..., blocks: _Optional[int] = ..., took_ns: _Optional[int] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("incarnation", "term", "version", "step_number", "rows", "waits", "removed", "copies_done", "batch_tokens", "started_ns", "ended_ns", "found", "swapped")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    COPIES_DONE_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STARTED_NS_FIELD_NUMBER: _ClassVar[int]
    ENDED_NS_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    term: int
    version: int
    step_number: int
    rows: _containers.RepeatedCompositeFieldContainer[RowResult]
    waits: _containers.RepeatedCompositeFieldContainer[RowWait]
    removed: _containers.RepeatedCompositeFieldContainer[RowResult]
    copies_done: int
    batch_tokens: int
    started_ns: int
    ended_ns: int
    found: _containers.RepeatedCompositeFieldContainer[RowResult]
    swapped: _containers.RepeatedCompositeFieldContainer[Swapped]
    def __init__(self, incarnation: _Optional[str] = ..., term: _Optional[int] = ..., version: _Optional[int] = ..., step_number: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[RowResult, _Mapping]]] = ..., waits: _Optional[_Iterable[_Union[RowWait, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[RowResult, _Mapping]]] = ..., copies_done: _Optional[int] = ..., batch_tokens: _Optional[int] = ..., started_ns: _Optional[int] = ..., ended_ns: _Optional[int] = ..., found: _Optional[_Iterable[_Union[RowResult, _Mapping]]] = ..., swapped: _Optional[_Iterable[_Union[Swapped, _Mapping]]] = ...) -> None: ...

class StepResults(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[StepResult]
    def __init__(self, results: _Optional[_Iterable[_Union[StepResult, _Mapping]]] = ...) -> None: ...

class Resync(_message.Message):
    __slots__ = ("incarnation", "term", "version")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    term: int
    version: int
    def __init__(self, incarnation: _Optional[str] = ..., term: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "began", "step_result", "resync", "step_results", "leaving")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    STEP_RESULT_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    STEP_RESULTS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    began: Began
    step_result: StepResult
    resync: Resync
    step_results: StepResults
    leaving: Leaving
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., began: _Optional[_Union[Began, _Mapping]] = ..., step_result: _Optional[_Union[StepResult, _Mapping]] = ..., resync: _Optional[_Union[Resync, _Mapping]] = ..., step_results: _Optional[_Union[StepResults, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("incarnation", "term")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    term: int
    def __init__(self, incarnation: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class Fork(_message.Message):
    __slots__ = ("sequence", "choice", "epoch")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    choice: int
    epoch: int
    def __init__(self, sequence: _Optional[int] = ..., choice: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Resident(_message.Message):
    __slots__ = ("sequence", "request_id", "choice", "epoch", "gateway", "ids", "prompt_tokens", "cursor", "block_table", "until", "params", "cached_tokens", "traceparent", "reach", "forks", "candidates")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TABLE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    FORKS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    request_id: str
    choice: int
    epoch: int
    gateway: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_tokens: int
    cursor: int
    block_table: _containers.RepeatedScalarFieldContainer[int]
    until: int
    params: _common_pb2.SamplingParams
    cached_tokens: int
    traceparent: str
    reach: int
    forks: _containers.RepeatedCompositeFieldContainer[Fork]
    candidates: int
    def __init__(self, sequence: _Optional[int] = ..., request_id: _Optional[str] = ..., choice: _Optional[int] = ..., epoch: _Optional[int] = ..., gateway: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ..., prompt_tokens: _Optional[int] = ..., cursor: _Optional[int] = ..., block_table: _Optional[_Iterable[int]] = ..., until: _Optional[int] = ..., params: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., cached_tokens: _Optional[int] = ..., traceparent: _Optional[str] = ..., reach: _Optional[int] = ..., forks: _Optional[_Iterable[_Union[Fork, _Mapping]]] = ..., candidates: _Optional[int] = ...) -> None: ...

class BlockGrant(_message.Message):
    __slots__ = ("sequence", "block_ids")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    block_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequence: _Optional[int] = ..., block_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Until(_message.Message):
    __slots__ = ("sequence", "until")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    until: int
    def __init__(self, sequence: _Optional[int] = ..., until: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("sequence", "tokens")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    tokens: int
    def __init__(self, sequence: _Optional[int] = ..., tokens: _Optional[int] = ...) -> None: ...

class BlockCopy(_message.Message):
    __slots__ = ("source", "target", "tokens")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    tokens: int
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ..., tokens: _Optional[int] = ...) -> None: ...

class Swap(_message.Message):
    __slots__ = ("sequence", "blocks", "host_blocks")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    HOST_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    host_blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequence: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ..., host_blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("term", "version", "residents", "order_hash", "incarnation")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESIDENTS_FIELD_NUMBER: _ClassVar[int]
    ORDER_HASH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    term: int
    version: int
    residents: _containers.RepeatedCompositeFieldContainer[Resident]
    order_hash: bytes
    incarnation: str
    def __init__(self, term: _Optional[int] = ..., version: _Optional[int] = ..., residents: _Optional[_Iterable[_Union[Resident, _Mapping]]] = ..., order_hash: _Optional[bytes] = ..., incarnation: _Optional[str] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("term", "version", "removed", "added", "grants", "untils", "copies", "chunks", "order_hash", "swap_outs", "swap_ins", "incarnation")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    UNTILS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    ORDER_HASH_FIELD_NUMBER: _ClassVar[int]
    SWAP_OUTS_FIELD_NUMBER: _ClassVar[int]
    SWAP_INS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    term: int
    version: int
    removed: _containers.RepeatedScalarFieldContainer[int]
    added: _containers.RepeatedCompositeFieldContainer[Resident]
    grants: _containers.RepeatedCompositeFieldContainer[BlockGrant]
    untils: _containers.RepeatedCompositeFieldContainer[Until]
    copies: _containers.RepeatedCompositeFieldContainer[BlockCopy]
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    order_hash: bytes
    swap_outs: _containers.RepeatedCompositeFieldContainer[Swap]
    swap_ins: _containers.RepeatedCompositeFieldContainer[Swap]
    incarnation: str
    def __init__(self, term: _Optional[int] = ..., version: _Optional[int] = ..., removed: _Optional[_Iterable[int]] = ..., added: _Optional[_Iterable[_Union[Resident, _Mapping]]] = ..., grants: _Optional[_Iterable[_Union[BlockGrant, _Mapping]]] = ..., untils: _Optional[_Iterable[_Union[Until, _Mapping]]] = ..., copies: _Optional[_Iterable[_Union[BlockCopy, _Mapping]]] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., order_hash: _Optional[bytes] = ..., swap_outs: _Optional[_Iterable[_Union[Swap, _Mapping]]] = ..., swap_ins: _Optional[_Iterable[_Union[Swap, _Mapping]]] = ..., incarnation: _Optional[str] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("term", "step_number", "incarnation")
    TERM_FIELD_NUMBER: _ClassVar[int]
    STEP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    term: int
    step_number: int
    incarnation: str
    def __init__(self, term: _Optional[int] = ..., step_number: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class FencedOff(_message.Message):
    __slots__ = ("term", "reason", "incarnation")
    TERM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    term: int
    reason: str
    incarnation: str
    def __init__(self, term: _Optional[int] = ..., reason: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class SchedulerMessage(_message.Message):
    __slots__ = ("snapshot", "delta", "ack", "fenced_off")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    FENCED_OFF_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    delta: Delta
    ack: Ack
    fenced_off: FencedOff
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., fenced_off: _Optional[_Union[FencedOff, _Mapping]] = ...) -> None: ...
