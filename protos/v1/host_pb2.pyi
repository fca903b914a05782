from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kill(_message.Message):
    __slots__ = ("incarnation", "term", "cell")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    term: int
    cell: str
    def __init__(self, incarnation: _Optional[str] = ..., term: _Optional[int] = ..., cell: _Optional[str] = ...) -> None: ...

class Gone(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    def __init__(self, incarnation: _Optional[str] = ...) -> None: ...

class ListIncarnations(_message.Message):
    __slots__ = ("term", "cell")
    TERM_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    term: int
    cell: str
    def __init__(self, term: _Optional[int] = ..., cell: _Optional[str] = ...) -> None: ...

class Incarnations(_message.Message):
    __slots__ = ("incarnations",)
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    incarnations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, incarnations: _Optional[_Iterable[str]] = ...) -> None: ...

class HostMessage(_message.Message):
    __slots__ = ("kill", "list_incarnations")
    KILL_FIELD_NUMBER: _ClassVar[int]
    LIST_INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    kill: Kill
    list_incarnations: ListIncarnations
    def __init__(self, kill: _Optional[_Union[Kill, _Mapping]] = ..., list_incarnations: _Optional[_Union[ListIncarnations, _Mapping]] = ...) -> None: ...

class HostReply(_message.Message):
    __slots__ = ("gone", "incarnations")
    GONE_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    gone: Gone
    incarnations: Incarnations
    def __init__(self, gone: _Optional[_Union[Gone, _Mapping]] = ..., incarnations: _Optional[_Union[Incarnations, _Mapping]] = ...) -> None: ...
