"""Settings on the wire: names with values, so that a field is declared once (see `setting`)."""

import struct
from typing import Any, TypeVar, get_args, get_origin

from dragonrt.errors import DragonError
from dragonrt.settings import Entry, assemble, entries, flat
from dragonrt.wire.reasons import MessageError, Reason

T = TypeVar("T")

Value = bool | int | float | str | bytes | tuple[Any, ...] | None
Values = tuple[tuple[str, Value], ...]

MOST_VALUES = 64
LONGEST_VALUE = 256 * 1024  # bytes: as many as the accepted tokens of the longest answer take


def pack(instance: Any) -> Values:
    """Return the fields to send, in order."""
    values = flat(instance)
    return tuple(
        (entry.name, _packed(entry, values[entry.name]))
        for entry in entries(type(instance))
        if entry.about.travels
    )


def unpack(cls: type[T], values: Values) -> T:
    """Return the instance, with defaults for fields not sent. Raises MessageError."""
    known = {entry.name: entry for entry in entries(cls) if entry.about.travels}
    given: dict[str, Any] = {}
    for name, value in values:
        if name not in known or name in given:
            raise MessageError(
                Reason.UNSUPPORTED,
                f"there is no setting {name!r} here, or it came twice: install the same dragonrt "
                "on both sides",
            )
        given[name] = _unpacked(known[name], value)
    try:
        return assemble(cls, given)
    except MessageError:
        raise
    except DragonError as error:
        raise MessageError(Reason.UNSUPPORTED, str(error)) from None


def _packed(entry: Entry, value: Any) -> Value:
    # Four bytes a token, not an array: decoding then never allocates more than it is sent.
    tokens = _is_tokens(entry.type)
    packed: Value = struct.pack(f"<{len(value)}I", *value) if tokens else value
    return packed


def _unpacked(entry: Entry, value: Any) -> Any:
    if not _is_tokens(entry.type):
        return value
    if type(value) is not bytes or len(value) % 4 or len(value) > LONGEST_VALUE:
        raise MessageError(Reason.MALFORMED, f"{entry.name} must be four bytes a token")
    return struct.unpack(f"<{len(value) // 4}I", value)


def _is_tokens(kind: Any) -> bool:
    return get_origin(kind) is tuple and get_args(kind) == (int, Ellipsis)
