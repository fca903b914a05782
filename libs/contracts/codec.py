"""The one bridge between the frozen values of messages.py and the protobuf wire.

A value and its wire message have the same name and the same field names (a test compares them), so one table-driven
pair of functions serves all. An envelope (`RepliesMessage`, …) is a wire message with one `oneof body`; its value is
the member itself. A field that may be None is `optional` on the wire, and None is its absence.
"""

from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError, Message

from libs.contracts import errors, messages
from libs.contracts.errors import MalformedMessage
from protos.v1 import (
    common_pb2,
    control_pb2,
    frames_pb2,
    host_pb2,
    inference_pb2,
    records_pb2,
    requests_pb2,
    text_pb2,
    worker_link_pb2,
)

M = TypeVar("M")

_WIRE_MODULES = (
    common_pb2,
    requests_pb2,
    text_pb2,
    frames_pb2,
    control_pb2,
    worker_link_pb2,
    host_pb2,
    records_pb2,
    inference_pb2,
)
ENVELOPES: dict[str, UnionType] = {
    "RepliesMessage": messages.RepliesMessage,
    "ControlMessage": messages.ControlMessage,
    "WorkerMessage": messages.WorkerMessage,
    "SchedulerMessage": messages.SchedulerMessage,
    "HostMessage": messages.HostMessage,
    "HostReply": messages.HostReply,
    "TokenizeReply": messages.TokenizeReply,
}


def encode(message: object) -> bytes:
    """The wire bytes of one value."""
    return _to_wire(message).SerializeToString()


def decode(kind: type[M], payload: bytes) -> M:
    """The value in `payload`. Raises MalformedMessage when the bytes are none of this kind."""
    wire = _parse(kind.__name__, payload)
    return _from_wire(kind, wire)


def encode_in(envelope: str, message: object) -> bytes:
    """The wire bytes of `message` inside the named envelope."""
    kind = type(message).__name__
    wire = wire_class(envelope)(**{_body_fields(envelope)[kind]: _to_wire(message)})
    return wire.SerializeToString()


def decode_in(envelope: str, payload: bytes) -> Any:
    """The member that an envelope holds. Raises MalformedMessage for none, or one from a newer version."""
    wire: Any = _parse(envelope, payload)
    body = wire.WhichOneof("body")
    if body is None:
        raise MalformedMessage(f"{envelope} without a body of this version")
    return _from_wire(_members(envelope)[body], getattr(wire, body))


@cache
def wire_class(name: str) -> type[Message]:
    """The generated class of this name."""
    for module in _WIRE_MODULES:
        if hasattr(module, name):
            found: type[Message] = getattr(module, name)
            return found
    raise LookupError(f"no wire message {name}")


def _parse(name: str, payload: bytes) -> Message:
    wire = wire_class(name)()
    try:
        wire.ParseFromString(payload)
    except DecodeError as error:
        raise MalformedMessage(f"not a {name}") from error
    return wire


def _to_wire(message: Any) -> Message:
    kind = type(message)
    return wire_class(kind.__name__)(
        **{name: _value_to_wire(getattr(message, name), nested, many) for name, nested, many, _ in _plan(kind)}  # type: ignore[arg-type]  # mypy: a type is hashable
    )


def _value_to_wire(value: Any, nested: type | None, many: bool) -> Any:
    if nested is None or value is None:
        return value
    return [_to_wire(item) for item in value] if many else _to_wire(value)


def _from_wire(kind: type[M], wire: Any) -> M:
    values = []
    for name, nested, many, may_lack in _plan(kind):  # type: ignore[arg-type]  # mypy: a type is hashable
        value: Any = getattr(wire, name) if not may_lack or wire.HasField(name) else None
        if nested is not None and value is not None:
            value = tuple(_from_wire(nested, item) for item in value) if many else _from_wire(nested, value)
        elif many:
            value = tuple(value)
        values.append(value)
    return kind(*values)


@cache
def _plan(kind: type[Any]) -> tuple[tuple[str, type | None, bool, bool], ...]:
    """Per field in order: name, nested value class or None, whether it repeats, whether a scalar may be absent."""
    hints = get_type_hints(kind, vars(errors) | vars(messages))
    plan = []
    for field in fields(kind):
        hint = hints[field.name]
        many = get_origin(hint) is tuple
        may_lack = get_origin(hint) is UnionType
        item = get_args(hint)[0] if many or may_lack else hint
        plan.append((field.name, None if item in (int, float, str, bytes, bool) else item, many, may_lack))
    return tuple(plan)


@cache
def _body_fields(envelope: str) -> dict[str, str]:
    body = wire_class(envelope).DESCRIPTOR.oneofs_by_name["body"]
    return {field.message_type.name: field.name for field in body.fields if field.message_type}


@cache
def _members(envelope: str) -> dict[str, type]:
    names = _body_fields(envelope)
    return {names[kind.__name__]: kind for kind in get_args(ENVELOPES[envelope])}
