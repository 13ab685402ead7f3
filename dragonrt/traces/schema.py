"""Records as JSON objects and back, exactly; the fields of every event are those of its type.

An object has `t`, `side`, `session`, `event` (its KIND), `peer` where there is one, and the event's
own fields. Fields with their default are left out. Bytes are base64, hashes 16 hexadecimal digits.
"""

import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

from dragonrt.errors import DragonError
from dragonrt.side import Side
from dragonrt.traces.events import DIGEST, EVENTS, HASH, PACKED, Event, Record
from dragonrt.traces.packed import digest, pack

SCHEMA = 4
"""Raised with every change of a field; files of another number are refused."""

KINDS: Mapping[str, type[Event]] = {event.KIND: event for event in EVENTS}


class TraceError(DragonError):
    """What is no trace, or none of this version; the line names the file and the line in it."""


def to_object(record: Record) -> dict[str, Any]:
    """The JSON object of a record."""
    common: dict[str, Any] = {"t": record.t, "side": record.side, "session": record.session}
    if record.peer:
        common["peer"] = record.peer
    return {**common, "event": record.event.KIND, **own_fields(record.event)}


def own_fields(event: Event) -> dict[str, Any]:
    """An event's own fields as they stand in a file."""
    found = {}
    for each in _FIELDS[event.KIND]:
        value = getattr(event, each.name)
        if value != each.default:
            found[each.name] = value if each.write is None else each.write(value)
    return found


def from_object(value: Any) -> Record:
    """The record that an object is of. Raises TraceError that says what is wrong with it."""
    if not isinstance(value, dict):
        raise TraceError("it is not an object")
    rest = dict(value)
    kind = _take(rest, "event", str)
    if kind not in KINDS:
        raise TraceError(f"this version has no event {kind!r}")
    t = float(_take(rest, "t", float))
    side = _take(rest, "side", Side)
    session = _take(rest, "session", int)
    peer = _take(rest, "peer", str) if "peer" in rest else ""
    return Record(t, side, session, _event(KINDS[kind], rest), peer)


def _event(kind: type[Event], rest: dict[str, Any]) -> Event:
    found = {}
    for each in _FIELDS[kind.KIND]:
        if each.name in rest or each.default is MISSING:
            try:
                found[each.name] = each.read(_take(rest, each.name, each.stored))
            except ValueError:  # text that is not base64, or not hexadecimal
                raise TraceError(f"{each.name} is of the wrong kind") from None
    if rest:
        raise TraceError(f"{kind.KIND} has no field {min(rest)}")
    return kind(**found)


def _take(rest: dict[str, Any], name: str, kind: Any) -> Any:
    value = rest.pop(name, MISSING)
    if value is MISSING:
        raise TraceError(f"{name} is missing")
    if not _fits(value, kind):
        raise TraceError(f"{name} is of the wrong kind")
    return value


# The fields of events.


@dataclass(frozen=True, slots=True)
class _Field:
    """`stored` is the type in a file; `write` makes it of a value, unless it is the value."""

    name: str
    default: Any
    stored: Any
    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any]


def _fields_of(kind: type[Event]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(
        _Field(each.name, each.default, *_stored(hints[each.name])) for each in fields(kind)
    )


def _stored(kind: Any) -> tuple[Any, Callable[[Any], Any] | None, Callable[[Any], Any]]:
    if kind is bytes:
        return str, lambda data: b64encode(data).decode("ascii"), partial(b64decode, validate=True)
    if get_origin(kind) is Annotated and HASH in kind.__metadata__:
        return str, lambda number: f"{number:016x}", partial(int, base=16)
    if get_origin(kind) is Annotated and PACKED in kind.__metadata__:
        return Any, pack, lambda packed: packed
    if get_origin(kind) is Annotated and DIGEST in kind.__metadata__:
        return str, digest, str
    if get_origin(kind) is tuple:
        # A type that is only known when it runs: mypy takes it for an annotation.
        return list[get_args(kind)[0]], list, tuple  # type: ignore[misc]
    if get_origin(kind) is Mapping:
        return dict[str, get_args(kind)[1]], dict, dict  # type: ignore[misc]
    return kind, None, float if kind is float else lambda value: value


def _fits(value: Any, kind: Any) -> bool:
    """Whether what JSON gave is of that type; whole numbers are floats, too."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if kind is float:
        return type(value) in (int, float)
    if origin is Literal:
        return value in arguments
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, each) for each in arguments)
    if origin is list:
        return type(value) is list and all(_fits(each, arguments[0]) for each in value)
    if origin is dict:
        return type(value) is dict and all(_fits(each, arguments[1]) for each in value.values())
    return type(value) is (type(None) if kind is None else kind)


_FIELDS = {event.KIND: _fields_of(event) for event in EVENTS}
