from protos.v1 import control_pb2 as _control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Alive(_message.Message):
    __slots__ = ("gateway",)
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    gateway: str
    def __init__(self, gateway: _Optional[str] = ...) -> None: ...

class CellRecord(_message.Message):
    __slots__ = ("model", "cell", "term", "scheduler", "address", "block_tokens", "model_digest", "max_prompt_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MAX_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    cell: str
    term: int
    scheduler: str
    address: str
    block_tokens: int
    model_digest: str
    max_prompt_tokens: int
    def __init__(self, model: _Optional[str] = ..., cell: _Optional[str] = ..., term: _Optional[int] = ..., scheduler: _Optional[str] = ..., address: _Optional[str] = ..., block_tokens: _Optional[int] = ..., model_digest: _Optional[str] = ..., max_prompt_tokens: _Optional[int] = ...) -> None: ...

class ServiceStatus(_message.Message):
    __slots__ = ("service", "instance", "pid", "port", "ready", "detail", "cells")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    service: str
    instance: str
    pid: int
    port: int
    ready: bool
    detail: str
    cells: _containers.RepeatedCompositeFieldContainer[_control_pb2.CellStatus]
    def __init__(self, service: _Optional[str] = ..., instance: _Optional[str] = ..., pid: _Optional[int] = ..., port: _Optional[int] = ..., ready: _Optional[bool] = ..., detail: _Optional[str] = ..., cells: _Optional[_Iterable[_Union[_control_pb2.CellStatus, _Mapping]]] = ...) -> None: ...

class ProfileQuery(_message.Message):
    __slots__ = ("duration_ms",)
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    duration_ms: int
    def __init__(self, duration_ms: _Optional[int] = ...) -> None: ...

class Lap(_message.Message):
    __slots__ = ("path", "lap_ns")
    PATH_FIELD_NUMBER: _ClassVar[int]
    LAP_NS_FIELD_NUMBER: _ClassVar[int]
    path: str
    lap_ns: int
    def __init__(self, path: _Optional[str] = ..., lap_ns: _Optional[int] = ...) -> None: ...

class WorkerProfile(_message.Message):
    __slots__ = ("worker", "duration_ns", "steps", "batch_tokens", "event_loop_cpu_ns", "process_cpu_ns", "laps")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EVENT_LOOP_CPU_NS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_CPU_NS_FIELD_NUMBER: _ClassVar[int]
    LAPS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    duration_ns: int
    steps: int
    batch_tokens: int
    event_loop_cpu_ns: int
    process_cpu_ns: int
    laps: _containers.RepeatedCompositeFieldContainer[Lap]
    def __init__(self, worker: _Optional[str] = ..., duration_ns: _Optional[int] = ..., steps: _Optional[int] = ..., batch_tokens: _Optional[int] = ..., event_loop_cpu_ns: _Optional[int] = ..., process_cpu_ns: _Optional[int] = ..., laps: _Optional[_Iterable[_Union[Lap, _Mapping]]] = ...) -> None: ...
