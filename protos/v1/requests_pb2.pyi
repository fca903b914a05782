from protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ("request_id", "epoch", "gateway", "model", "tenant", "prompt", "params", "choices", "deadline_unix_ms", "echo_ids", "priority", "is_timed", "bad_words", "cache_salt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ECHO_IDS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    IS_TIMED_FIELD_NUMBER: _ClassVar[int]
    BAD_WORDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    epoch: int
    gateway: str
    model: str
    tenant: str
    prompt: _common_pb2.Prompt
    params: _common_pb2.SamplingParams
    choices: int
    deadline_unix_ms: int
    echo_ids: bool
    priority: int
    is_timed: bool
    bad_words: _containers.RepeatedScalarFieldContainer[str]
    cache_salt: str
    def __init__(self, request_id: _Optional[str] = ..., epoch: _Optional[int] = ..., gateway: _Optional[str] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ..., prompt: _Optional[_Union[_common_pb2.Prompt, _Mapping]] = ..., params: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., choices: _Optional[int] = ..., deadline_unix_ms: _Optional[int] = ..., echo_ids: _Optional[bool] = ..., priority: _Optional[int] = ..., is_timed: _Optional[bool] = ..., bad_words: _Optional[_Iterable[str]] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class Sequence(_message.Message):
    __slots__ = ("request_id", "epoch", "gateway", "model", "tenant", "ids", "block_hashes", "params", "choices", "deadline_unix_ms", "priority", "is_timed", "adapter", "cache_salt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    IS_TIMED_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    epoch: int
    gateway: str
    model: str
    tenant: str
    ids: _containers.RepeatedScalarFieldContainer[int]
    block_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    params: _common_pb2.SamplingParams
    choices: int
    deadline_unix_ms: int
    priority: int
    is_timed: bool
    adapter: str
    cache_salt: str
    def __init__(self, request_id: _Optional[str] = ..., epoch: _Optional[int] = ..., gateway: _Optional[str] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ..., ids: _Optional[_Iterable[int]] = ..., block_hashes: _Optional[_Iterable[bytes]] = ..., params: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., choices: _Optional[int] = ..., deadline_unix_ms: _Optional[int] = ..., priority: _Optional[int] = ..., is_timed: _Optional[bool] = ..., adapter: _Optional[str] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("request_id", "epoch", "cell", "prompt_tokens", "prompt_ids")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    epoch: int
    cell: str
    prompt_tokens: int
    prompt_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., epoch: _Optional[int] = ..., cell: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., prompt_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("request_id", "epoch", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    epoch: int
    error: _common_pb2.WireError
    def __init__(self, request_id: _Optional[str] = ..., epoch: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.WireError, _Mapping]] = ...) -> None: ...

class ChoiceEpoch(_message.Message):
    __slots__ = ("choice", "epoch", "deaths", "died_at")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DEATHS_FIELD_NUMBER: _ClassVar[int]
    DIED_AT_FIELD_NUMBER: _ClassVar[int]
    choice: int
    epoch: int
    deaths: int
    died_at: int
    def __init__(self, choice: _Optional[int] = ..., epoch: _Optional[int] = ..., deaths: _Optional[int] = ..., died_at: _Optional[int] = ...) -> None: ...

class EpochRaised(_message.Message):
    __slots__ = ("request_id", "term", "cell", "choices")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    term: int
    cell: str
    choices: _containers.RepeatedCompositeFieldContainer[ChoiceEpoch]
    def __init__(self, request_id: _Optional[str] = ..., term: _Optional[int] = ..., cell: _Optional[str] = ..., choices: _Optional[_Iterable[_Union[ChoiceEpoch, _Mapping]]] = ...) -> None: ...

class LogQuery(_message.Message):
    __slots__ = ("request_ids", "term", "cell")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    term: int
    cell: str
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., term: _Optional[int] = ..., cell: _Optional[str] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("request_id", "epoch", "choice", "total", "reason", "term", "cell")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    epoch: int
    choice: int
    total: int
    reason: str
    term: int
    cell: str
    def __init__(self, request_id: _Optional[str] = ..., epoch: _Optional[int] = ..., choice: _Optional[int] = ..., total: _Optional[int] = ..., reason: _Optional[str] = ..., term: _Optional[int] = ..., cell: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("request_id", "epoch", "error", "term", "cell")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    epoch: int
    error: _common_pb2.WireError
    term: int
    cell: str
    def __init__(self, request_id: _Optional[str] = ..., epoch: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.WireError, _Mapping]] = ..., term: _Optional[int] = ..., cell: _Optional[str] = ...) -> None: ...

class Known(_message.Message):
    __slots__ = ("live",)
    LIVE_FIELD_NUMBER: _ClassVar[int]
    live: bool
    def __init__(self, live: _Optional[bool] = ...) -> None: ...

class ChoiceLog(_message.Message):
    __slots__ = ("choice", "ids", "end", "epoch", "deaths", "died_at")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DEATHS_FIELD_NUMBER: _ClassVar[int]
    DIED_AT_FIELD_NUMBER: _ClassVar[int]
    choice: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    end: str
    epoch: int
    deaths: int
    died_at: int
    def __init__(self, choice: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., end: _Optional[str] = ..., epoch: _Optional[int] = ..., deaths: _Optional[int] = ..., died_at: _Optional[int] = ...) -> None: ...

class RequestLog(_message.Message):
    __slots__ = ("request_id", "live", "choices")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    live: bool
    choices: _containers.RepeatedCompositeFieldContainer[ChoiceLog]
    def __init__(self, request_id: _Optional[str] = ..., live: _Optional[bool] = ..., choices: _Optional[_Iterable[_Union[ChoiceLog, _Mapping]]] = ...) -> None: ...

class Logs(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RequestLog]
    def __init__(self, requests: _Optional[_Iterable[_Union[RequestLog, _Mapping]]] = ...) -> None: ...

class RepliesMessage(_message.Message):
    __slots__ = ("accepted", "rejected", "epoch_raised", "log_query", "finished", "failed")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_RAISED_FIELD_NUMBER: _ClassVar[int]
    LOG_QUERY_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    rejected: Rejected
    epoch_raised: EpochRaised
    log_query: LogQuery
    finished: Finished
    failed: Failed
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., epoch_raised: _Optional[_Union[EpochRaised, _Mapping]] = ..., log_query: _Optional[_Union[LogQuery, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ...) -> None: ...
