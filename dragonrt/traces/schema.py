"""Records as JSON objects and back, exactly; the fields of every event are those of its type.

An object has `t`, `side`, `session`, `event` (its KIND), `peer` where there is one, and the event's
own fields. Fields with their default are left out.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from typing import Any, Literal, get_args, get_origin

from dragonrt.errors import DragonError
from dragonrt.traces.events import EVENTS, Event, Record

SCHEMA = 6
"""Raised with every change of a field; files of another number are refused."""
KINDS: Mapping[str, type[Event]] = {event.KIND: event for event in EVENTS}


def to_object(record: Record) -> dict[str, Any]:
    """Return the JSON object of a record."""
    return {**own_fields(record), "event": record.event.KIND, **own_fields(record.event)}


def own_fields(of: Event | Record) -> dict[str, Any]:
    """Return the fields of a record in a file, except those of its event."""
    values = ((each, getattr(of, each.name)) for each, _ in _FIELDS[type(of)])
    return {each.name: value for each, value in values if value != each.default}


def from_object(value: Any) -> Record:
    """Return the record of a JSON object. Raises DragonError, which names the fault."""
    if not isinstance(value, dict):
        raise DragonError("it is not an object")
    rest = dict(value)
    kind = rest.pop("event", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise DragonError(f"this version has no event {kind!r}")
    common = _read(rest, Record)
    record = Record(event=KINDS[kind](**_read(rest, KINDS[kind])), **common)
    if rest:
        raise DragonError(f"{kind} has no field {min(rest)}")
    return record


def _fields(cls: type[Any]) -> tuple[tuple[Field[Any], Any], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((each, hints[each.name]) for each in fields(cls) if each.name != "event")


def _read(rest: dict[str, Any], cls: type[Event | Record]) -> dict[str, Any]:
    """Take the fields of that type out of `rest`."""
    found = {}
    for each, kind in _FIELDS[cls]:
        if each.name in rest:
            try:
                found[each.name] = _value(rest.pop(each.name), kind)
            except ValueError:
                raise DragonError(f"{each.name} is of the wrong kind") from None
        elif each.default is MISSING:
            raise DragonError(f"{each.name} is missing")
    return found


def _value(value: Any, kind: Any) -> Any:
    """Return a JSON value as that type. Raises ValueError if it is of another."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and type(value) is list:
        return tuple(_value(each, arguments[0]) for each in value)
    if origin is Mapping and type(value) is dict:
        return {key: _value(each, arguments[1]) for key, each in value.items()}
    kinds = arguments if origin is types.UnionType else (kind,)
    for each in kinds if type(value) is str else ():
        if isinstance(each, type) and issubclass(each, StrEnum):
            return each(value)
    if type(value) is int and int not in kinds and float in kinds:
        return float(value)
    fits = value in arguments if origin is Literal else type(value) in kinds
    if kind is not Any and not fits:
        raise ValueError
    return value


_FIELDS = {Record: _fields(Record)} | {cls: _fields(cls) for cls in EVENTS}
