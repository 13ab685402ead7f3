"""Checks of message fields before use; an annotation declares a field's check.

A bool is not an integer, NaN and the infinities are not numbers, and text must be encodable as
UTF-8.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, get_type_hints

from dragonrt.wire.limits import MAX_TOKEN
from dragonrt.wire.reasons import MessageError, Reason

MAX_LINE = 1024


@dataclass(frozen=True, slots=True)
class Check:
    """The values that a field must have, a test `fits`, and the conversion of a value that fits.

    A value of one of the `kinds` from `low` to `high` always fits.
    """

    must: str
    fits: Callable[[Any], bool]
    clean: Callable[[Any], Any] | None = None
    kinds: tuple[type, ...] = ()
    low: float = 0
    high: float = 0

    def refusal(self, name: str, value: Any) -> MessageError:
        """Return the error for a field's value that does not fit."""
        shown = repr(value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        return MessageError(Reason.MALFORMED, f"{name} must be {self.must}, not {shown}")


class Checked:
    """A frozen dataclass that checks its annotated fields when it is made."""

    __slots__ = ()
    CHECKS: ClassVar[Mapping[str, Check]]

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        annotated = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
        cls.CHECKS = {name: found[0] for name, found in annotated.items() if found}

    def __post_init__(self) -> None:
        self.check_fields()

    def check_fields(self) -> None:
        """Check and clean all annotated fields. Raises MessageError."""
        for name, check in self.CHECKS.items():
            value = getattr(self, name)
            if type(value) in check.kinds and check.low <= value <= check.high:
                continue
            if not check.fits(value):
                raise check.refusal(name, value)
            if check.clean is not None:
                object.__setattr__(self, name, check.clean(value))


def integer(low: int, high: int) -> Check:
    """Return the check for an integer from `low` to `high`."""
    fits: Callable[[Any], bool] = lambda value: type(value) is int and low <= value <= high  # noqa: E731
    must = f"an integer from {low} to {high}"
    return Check(must, fits, kinds=(int,), low=low, high=high)


def number(low: float, high: float) -> Check:
    """Return the check for a finite float (or integer) from `low` to `high`."""
    must = "a finite number" if high == sys.float_info.max else f"a number from {low:g} to {high:g}"
    return Check(
        must,
        lambda value: (type(value) is int or isinstance(value, float)) and low <= value <= high,
        kinds=(int, float),
        low=low,
        high=high,
    )


def octets(low: int, high: int) -> Check:
    """Return the check for bytes of a length from `low` to `high`."""
    must = f"{low} bytes" if low == high else f"{low} to {high} bytes"
    return Check(must, lambda value: type(value) is bytes and low <= len(value) <= high)


def utf8(limit: int) -> Check:
    """Return the check for a text of at most `limit` bytes of UTF-8, line breaks included."""

    def fits(value: Any) -> bool:
        try:
            return type(value) is str and len(value.encode()) <= limit
        except UnicodeEncodeError:
            return False

    return Check(f"text of at most {limit} bytes", fits)


def identifier(limit: int) -> Check:
    """Return the check for a short identifier: printable, not empty."""
    return Check(
        f"1 to {limit} printable characters",
        lambda value: type(value) is str and 1 <= len(value) <= limit and value.isprintable(),
    )


def tuple_of(each: Check, limit: int) -> Check:
    """Return the check for a tuple of at most `limit` entries, each with its own check."""
    return Check(
        f"a tuple of at most {limit} entries, each {each.must}",
        lambda value: type(value) is tuple and len(value) <= limit and all(map(each.fits, value)),
    )


def _one_line(line: str) -> str:
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    if len(line) * 4 > MAX_LINE:
        line = line.encode()[:MAX_LINE].decode(errors="ignore")
    return line


LINE: Final = Check("text", lambda value: type(value) is str, _one_line)
"""Text for people. It is cleaned, to one printable line of at most 1 KiB, rather than refused: so
reporting an error cannot fail, and the other side cannot control a terminal."""
FINITE: Final = number(-sys.float_info.max, sys.float_info.max)
TOKEN: Final = integer(0, MAX_TOKEN)
