"""Messages as msgpack and back: `encode` and `decode` of the body of one frame.

A message is the array `[TYPE, field, field, ...]`, so a draft costs few bytes beyond its payload.
Decoding bounds array lengths, rejects maps and extensions, and each message checks its fields.
"""

import functools
import typing
from collections.abc import Collection, Mapping
from typing import Any

import msgpack
from msgspec import ValidationError, convert
from msgspec.structs import astuple

from dragonrt import schema
from dragonrt.wire.fields import MAX_32
from dragonrt.wire.messages import (
    CONNECTION_MESSAGES,
    PROTOCOL_VERSION,
    SESSION_MESSAGES,
    Hello,
    Message,
    SessionMessage,
)
from dragonrt.wire.reasons import MessageError, Reason

LONGEST_ARRAY = 512  # limits the allocation by nested array headers

_BY_CODE: dict[int, type[Message]] = {}


def add(kind: type[Message]) -> None:
    """Have messages of this type encoded and decoded."""
    _BY_CODE[kind.TYPE] = kind


for _each in (*CONNECTION_MESSAGES, *SESSION_MESSAGES):
    add(_each)


def encode(message: Message) -> bytes:
    """Return the body of a frame: a msgpack array of the message's type and fields."""
    return bytes(msgpack.packb((message.TYPE, *astuple(message)), default=astuple))


def decode(body: bytes, expected: Collection[type[Message]] | None = None) -> Message:
    """Return the message in a frame's body; its fields are read only if its type is `expected`.

    None: any type is.

    Raises MessageError, with `session` set if the message belongs to one.
    """
    try:
        values = msgpack.unpackb(
            body, use_list=False, max_array_len=LONGEST_ARRAY, max_map_len=0, max_ext_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise MessageError(Reason.MALFORMED, f"a message is not valid msgpack: {error}") from None
    kind = _kind(values)
    if expected is not None and kind not in expected:
        text = f"a message of type {kind.__name__} may not come now"
        raise MessageError(Reason.OUT_OF_ORDER, text, _session(kind, values))
    if kind is Hello:
        _check_version(values)
    try:
        if len(values) == 1 + len(kind.__struct_fields__):
            return convert(values[1:], kind, builtin_types=schema.BUILTIN)
        text = f"{len(values) - 1} fields instead of {len(kind.__struct_fields__)}"
    except MessageError as error:
        text = error.text
    except ValidationError as error:
        text = _fault(kind, values[1:]) or str(error)
    text = f"{kind.__name__}: {text}"
    raise MessageError(Reason.MALFORMED, text, _session(kind, values))


@functools.cache
def types(kind: type) -> Mapping[str, Any]:
    """Return the types of a message's fields, with their bounds."""
    return typing.get_type_hints(kind, include_extras=True)


def _fault(kind: type[Message], values: tuple[Any, ...]) -> str | None:
    """Return what is wrong with the first field that is, in our words."""
    for name, value in zip(kind.__struct_fields__, values, strict=True):
        try:
            schema.read(types(kind)[name], value)
        except schema.MismatchError as error:
            return f"{name} {error}"
    return None


def _kind(values: Any) -> type[Message]:
    code = values[0] if type(values) is tuple and values else None
    kind = _BY_CODE.get(code) if type(code) is int else None
    if kind is None:
        raise MessageError(Reason.MALFORMED, "a message is not an array that starts with its type")
    return kind


def _session(kind: type[Message], values: tuple[Any, ...]) -> int | None:
    if not issubclass(kind, SessionMessage) or len(values) < 2:
        return None
    session = values[1]
    return session if type(session) is int and 0 <= session <= MAX_32 else None


def _check_version(values: tuple[Any, ...]) -> None:
    """Check the version before the other fields, which may differ in another version."""
    version = values[1] if len(values) > 1 else None
    if type(version) is int and version != PROTOCOL_VERSION:
        raise MessageError(
            Reason.VERSION,
            f"the other side has version {version} of the protocol, this side version "
            f"{PROTOCOL_VERSION}: install the same dragonrt on both sides",
        )
