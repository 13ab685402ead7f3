"""Records as JSON objects and back, exactly; the fields of every event are those of its type.

An object has `t`, `side`, `session`, `event` (its KIND), `peer` where there is one, and the event's
own fields. Fields with their default are left out.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from msgspec import ValidationError, convert

from dragonrt.errors import DragonError
from dragonrt.traces.events import EVENTS, Event, Record

SCHEMA = 7
"""Raised with every change of a field; files of another number are refused."""
KINDS: Mapping[str, type[Event]] = {event.KIND: event for event in EVENTS}


def to_object(record: Record) -> dict[str, Any]:
    """Return the JSON object of a record."""
    return {**own_fields(record), "event": record.event.KIND, **own_fields(record.event)}


def own_fields(of: Event | Record) -> dict[str, Any]:
    """Return the fields of a record in a file, except those of its event."""
    values = ((name, default, getattr(of, name)) for name, default in _DEFAULTS[type(of)].items())
    return {name: value for name, default, value in values if value != default}


def from_object(value: Any) -> Record:
    """Return the record of a JSON object. Raises DragonError, which names the fault."""
    if not isinstance(value, dict):
        raise DragonError("it is not an object")
    event = value.get("event")
    if not isinstance(event, str) or event not in KINDS:
        raise DragonError(f"this version has no event {event!r}")
    kind = KINDS[event]
    if unknown := value.keys() - _DEFAULTS[Record].keys() - _DEFAULTS[kind].keys() - {"event"}:
        raise DragonError(f"{event} has no field {min(unknown)}")
    try:
        return convert({**value, "event": convert(value, kind)}, Record)
    except ValidationError as error:
        raise DragonError(str(error)) from None


_CLASSES: tuple[type[Event | Record], ...] = (Record, *EVENTS)
_DEFAULTS = {
    cls: {each.name: each.default for each in fields(cls) if each.name != "event"}
    for cls in _CLASSES
}
