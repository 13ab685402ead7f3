"""Records as JSON objects and back, exactly; the fields of every event are those of its type.

An object has `t`, `side`, `session`, `event` (its KIND), `peer` where there is one, and the event's
own fields. Fields with their default are left out. Bytes are base64, hashes 16 hexadecimal digits.
"""

import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from dragonrt.errors import DragonError
from dragonrt.traces.events import DIGEST, EVENTS, HASH, PACKED, Event, Record
from dragonrt.traces.packed import digest, pack

SCHEMA = 4
"""Raised with every change of a field; files of another number are refused."""


class TraceError(DragonError):
    """What is no trace, or none of this version; the line names the file and the line in it."""


def to_object(record: Record) -> dict[str, Any]:
    """Return the JSON object of a record."""
    common = _written(record, _COMMON)
    return {**common, "event": record.event.KIND, **own_fields(record.event)}


def own_fields(event: Event) -> dict[str, Any]:
    """Return an event's own fields as they stand in a file."""
    return _written(event, _FIELDS[event.KIND])


def from_object(value: Any) -> Record:
    """Return the record that an object is of. Raises TraceError that says what is wrong with it."""
    if not isinstance(value, dict):
        raise TraceError("it is not an object")
    rest = dict(value)
    if "event" not in rest:
        raise TraceError("event is missing")
    kind = rest.pop("event")
    if not isinstance(kind, str):
        raise TraceError("event is of the wrong kind")
    if kind not in KINDS:
        raise TraceError(f"this version has no event {kind!r}")
    common = _read(rest, _COMMON)
    event = KINDS[kind](**_read(rest, _FIELDS[kind]))
    if rest:
        raise TraceError(f"{kind} has no field {min(rest)}")
    return Record(event=event, **common)


class _Field(NamedTuple):
    """A field and its form in a file: of the type `stored`, made by `write`, taken by `read`."""

    name: str
    default: Any
    stored: Any
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _written(of: Any, its: tuple[_Field, ...]) -> dict[str, Any]:
    found = {}
    for each in its:
        value = getattr(of, each.name)
        if value != each.default:
            found[each.name] = each.write(value)
    return found


def _read(rest: dict[str, Any], its: tuple[_Field, ...]) -> dict[str, Any]:
    """Take the fields out of `rest`."""
    found = {}
    for each in its:
        if each.name in rest:
            value = rest.pop(each.name)
            try:
                if not _fits(value, each.stored):
                    raise ValueError
                found[each.name] = each.read(value)
            except ValueError:  # text that is not base64, or not hexadecimal, too
                raise TraceError(f"{each.name} is of the wrong kind") from None
        elif each.default is MISSING:
            raise TraceError(f"{each.name} is missing")
    return found


def _fields_of(cls: type[Event | Record]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    own = (each for each in fields(cls) if each.name != "event")
    return tuple(_Field(each.name, each.default, *_stored(hints[each.name])) for each in own)


def _stored(kind: Any) -> tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]:
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
    return kind, lambda value: value, float if kind is float else lambda value: value


def _fits(value: Any, kind: Any) -> bool:
    """Whether what JSON gave is of that type; whole numbers are floats, too."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in arguments
    if origin is types.UnionType:
        return any(_fits(value, each) for each in arguments)
    if origin is list:
        return type(value) is list and all(_fits(each, arguments[0]) for each in value)
    if origin is dict:
        return type(value) is dict and all(_fits(each, arguments[1]) for each in value.values())
    if kind is float:
        return type(value) in (int, float)
    return kind is Any or type(value) is kind


KINDS: Mapping[str, Callable[..., Event]] = {event.KIND: event for event in EVENTS}
_FIELDS = {event.KIND: _fields_of(event) for event in EVENTS}
_COMMON = _fields_of(Record)
