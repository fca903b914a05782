from protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Cancel(_message.Message):
    __slots__ = ("request_id", "deadline_unix_ms", "term", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    deadline_unix_ms: int
    term: int
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., deadline_unix_ms: _Optional[int] = ..., term: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class StopAt(_message.Message):
    __slots__ = ("request_id", "choice", "position", "term", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choice: int
    position: int
    term: int
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., choice: _Optional[int] = ..., position: _Optional[int] = ..., term: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Resend(_message.Message):
    __slots__ = ("request_id", "choice", "position", "term", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choice: int
    position: int
    term: int
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., choice: _Optional[int] = ..., position: _Optional[int] = ..., term: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ScoresQuery(_message.Message):
    __slots__ = ("request_id", "first", "term", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    first: int
    term: int
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., first: _Optional[int] = ..., term: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Delivered(_message.Message):
    __slots__ = ("request_id", "totals", "term", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    totals: _containers.RepeatedScalarFieldContainer[int]
    term: int
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., totals: _Optional[_Iterable[int]] = ..., term: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Exited(_message.Message):
    __slots__ = ("incarnation", "term")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    term: int
    def __init__(self, incarnation: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class StatusQuery(_message.Message):
    __slots__ = ("audit",)
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    audit: bool
    def __init__(self, audit: _Optional[bool] = ...) -> None: ...

class ControlMessage(_message.Message):
    __slots__ = ("cancel", "stop_at", "resend", "delivered", "status_query", "exited", "scores_query")
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    STOP_AT_FIELD_NUMBER: _ClassVar[int]
    RESEND_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    STATUS_QUERY_FIELD_NUMBER: _ClassVar[int]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    SCORES_QUERY_FIELD_NUMBER: _ClassVar[int]
    cancel: Cancel
    stop_at: StopAt
    resend: Resend
    delivered: Delivered
    status_query: StatusQuery
    exited: Exited
    scores_query: ScoresQuery
    def __init__(self, cancel: _Optional[_Union[Cancel, _Mapping]] = ..., stop_at: _Optional[_Union[StopAt, _Mapping]] = ..., resend: _Optional[_Union[Resend, _Mapping]] = ..., delivered: _Optional[_Union[Delivered, _Mapping]] = ..., status_query: _Optional[_Union[StatusQuery, _Mapping]] = ..., exited: _Optional[_Union[Exited, _Mapping]] = ..., scores_query: _Optional[_Union[ScoresQuery, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("known",)
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    known: bool
    def __init__(self, known: _Optional[bool] = ...) -> None: ...

class Resent(_message.Message):
    __slots__ = ("known", "position", "ids", "logprobs", "end", "top_ids", "top_logprobs")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TOP_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    known: bool
    position: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    end: str
    top_ids: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, known: _Optional[bool] = ..., position: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., end: _Optional[str] = ..., top_ids: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class Scored(_message.Message):
    __slots__ = ("known", "scores")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    known: bool
    scores: _containers.RepeatedCompositeFieldContainer[_common_pb2.PromptScores]
    def __init__(self, known: _Optional[bool] = ..., scores: _Optional[_Iterable[_Union[_common_pb2.PromptScores, _Mapping]]] = ...) -> None: ...

class CellStatus(_message.Message):
    __slots__ = ("cell", "model", "term", "workers", "blocks_total", "blocks_free", "blocks_cached", "blocks_held", "blocks_freeing", "block_tokens", "waiting", "running", "moved_sequences", "recomputed_tokens", "problems")
    CELL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FREE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_CACHED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_HELD_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FREEING_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    MOVED_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    cell: str
    model: str
    term: int
    workers: _containers.RepeatedScalarFieldContainer[str]
    blocks_total: int
    blocks_free: int
    blocks_cached: int
    blocks_held: int
    blocks_freeing: int
    block_tokens: int
    waiting: int
    running: int
    moved_sequences: int
    recomputed_tokens: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cell: _Optional[str] = ..., model: _Optional[str] = ..., term: _Optional[int] = ..., workers: _Optional[_Iterable[str]] = ..., blocks_total: _Optional[int] = ..., blocks_free: _Optional[int] = ..., blocks_cached: _Optional[int] = ..., blocks_held: _Optional[int] = ..., blocks_freeing: _Optional[int] = ..., block_tokens: _Optional[int] = ..., waiting: _Optional[int] = ..., running: _Optional[int] = ..., moved_sequences: _Optional[int] = ..., recomputed_tokens: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...
