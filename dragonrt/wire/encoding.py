"""Messages as msgpack and back: `encode` and `decode` of the body of one frame.

A message is the array `[TYPE, field, field, ...]`, so a draft costs a few bytes beyond its
payload. Decoding trusts nothing: array lengths are bounded, maps and extensions are refused, and
every field is checked by the message it becomes.
"""

from collections.abc import Collection
from dataclasses import astuple, fields
from operator import attrgetter
from typing import Any

import msgpack

from dragonrt.wire.fields import check_integer, check_tuple
from dragonrt.wire.limits import MAX_32, MAX_DOCUMENTS
from dragonrt.wire.messages import (
    CONNECTION_MESSAGES,
    PROTOCOL_VERSION,
    SESSION_MESSAGES,
    Attribution,
    Close,
    Hello,
    Message,
    Source,
)
from dragonrt.wire.reasons import MessageError, Reason

LONGEST_ARRAY = 512  # bounds what a hostile nest of array headers can make us allocate

_MESSAGES: tuple[type[Message], ...] = CONNECTION_MESSAGES + SESSION_MESSAGES
_BY_TYPE = {message.TYPE: message for message in _MESSAGES}
_VALUES = {m: attrgetter("TYPE", *(field.name for field in fields(m))) for m in _MESSAGES}
_LENGTH = {message: 1 + len(fields(message)) for message in _MESSAGES}


def encode(message: Message) -> bytes:
    """The body of a frame: a msgpack array of the message's type and fields."""
    values = _VALUES[type(message)](message)
    if isinstance(message, Close) and message.attribution is not None:
        values = (*values[:-1], _packed(message.attribution))
    return bytes(msgpack.packb(values))


def decode(body: bytes, expected: Collection[type[Message]] = _MESSAGES) -> Message:
    """The message in a frame's body; its fields are read only if its type is `expected`.

    Raises MessageError, with `session` set when the message was clearly meant for one session.
    """
    try:
        values = msgpack.unpackb(
            body, use_list=False, max_array_len=LONGEST_ARRAY, max_map_len=0, max_ext_len=0
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise MessageError(Reason.MALFORMED, f"a message is not valid msgpack: {error}") from None
    kind = _kind(values)
    session = _session(kind, values)
    if kind not in expected:
        raise MessageError(
            Reason.OUT_OF_ORDER, f"a message of type {kind.__name__} may not come now", session
        )
    if kind is Hello:
        _check_version(values)
    try:
        return _build(kind, values)
    except MessageError as error:
        text = f"{kind.__name__}: {error.text}"
        raise MessageError(error.reason, text, session) from None


def _kind(values: Any) -> type[Message]:
    code = values[0] if type(values) is tuple and values else None
    if type(code) is not int or code not in _BY_TYPE:
        raise MessageError(Reason.MALFORMED, "a message is not an array that starts with its type")
    return _BY_TYPE[code]


def _session(kind: type[Message], values: tuple[Any, ...]) -> int | None:
    if kind not in SESSION_MESSAGES or len(values) < 2:
        return None
    session = values[1]
    return session if type(session) is int and 0 <= session <= MAX_32 else None


def _check_version(values: tuple[Any, ...]) -> None:
    """Judge the version before the other fields: in another version they may be others."""
    version = values[1] if len(values) > 1 else None
    check_integer("version", version, 1, MAX_32)
    if version != PROTOCOL_VERSION:
        raise MessageError(
            Reason.VERSION,
            f"the other side speaks version {version} of the protocol, this side version "
            f"{PROTOCOL_VERSION}: install the same dragonrt on both sides",
        )


def _build(kind: type[Message], values: tuple[Any, ...]) -> Message:
    if len(values) != _LENGTH[kind]:
        raise MessageError(
            Reason.MALFORMED, f"{len(values) - 1} fields instead of {_LENGTH[kind] - 1}"
        )
    arguments: list[Any] = list(values[1:])
    if kind is Close and arguments[-1] is not None:
        arguments[-1] = _attribution(arguments[-1])
    return kind(*arguments)


def _packed(attribution: Attribution) -> tuple[Any, ...]:
    return tuple(astuple(source) for source in attribution.sources), attribution.missing


def _attribution(values: Any) -> Attribution:
    if type(values) is not tuple or len(values) != 2:
        raise MessageError(Reason.MALFORMED, "an attribution must have sources and missing codes")
    check_tuple("sources", values[0], MAX_DOCUMENTS)
    return Attribution(tuple(map(_source, values[0])), values[1])


def _source(values: Any) -> Source:
    if type(values) is not tuple or len(values) != len(fields(Source)):
        raise MessageError(Reason.MALFORMED, f"a source must have {len(fields(Source))} fields")
    return Source(*values)
