"""Checks of single message fields: type, range and length, before anything uses them.

Each raises MessageError with a line that names the field. A bool is not an integer, NaN and the
infinities are not numbers, and text must be encodable as UTF-8.
"""

import sys
from typing import Any

from dragonrt.wire.limits import MAX_TOKEN
from dragonrt.wire.reasons import MessageError, Reason

LARGEST_FLOAT = sys.float_info.max
MAX_LINE = 1024


def _wrong(name: str, value: object, must: str) -> MessageError:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return MessageError(Reason.MALFORMED, f"{name} must be {must}, not {shown}")


def check_integer(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _wrong(name, value, f"an integer from {low} to {high}")


def check_number(name: str, value: Any, low: float, high: float) -> None:
    """A finite float (or integer) from `low` to `high`, both included."""
    if not (type(value) is int or isinstance(value, float)) or not low <= value <= high:
        raise _wrong(name, value, f"a number from {low:g} to {high:g}")


def check_bytes(name: str, value: Any, low: int, high: int) -> None:
    if type(value) is not bytes or not low <= len(value) <= high:
        length = f"{low}" if low == high else f"{low} to {high}"
        raise _wrong(name, value, f"{length} bytes")


def check_text(name: str, value: Any, limit: int) -> None:
    """Any text of at most `limit` bytes of UTF-8, line breaks included."""
    if type(value) is not str:
        raise _wrong(name, value, "text")
    if text_size(name, value) > limit:
        raise _wrong(name, value, f"text of at most {limit} bytes")


def text_size(name: str, value: str) -> int:
    """The length of `value` in bytes of UTF-8."""
    try:
        return len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise _wrong(name, value, "text without surrogates") from None


def check_name(name: str, value: Any, limit: int) -> None:
    """A short identifier: printable, not empty, at most `limit` characters."""
    if type(value) is not str or not 1 <= len(value) <= limit or not value.isprintable():
        raise _wrong(name, value, f"1 to {limit} printable characters")


def check_tuple(name: str, value: Any, limit: int) -> None:
    if type(value) is not tuple or len(value) > limit:
        raise _wrong(name, value, f"a tuple of at most {limit} entries")


def check_tokens(name: str, tokens: Any, limit: int) -> None:
    check_tuple(name, tokens, limit)
    for token in tokens:
        check_integer(f"a token of {name}", token, 0, MAX_TOKEN)


def one_line(name: str, value: Any) -> str:
    """Text for people, made safe to show: one printable line of at most 1 KiB.

    It is cleaned rather than refused, so that reporting an error cannot itself fail and the other
    side cannot send control sequences to a terminal.
    """
    if type(value) is not str:
        raise _wrong(name, value, "text")
    line: str = value
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    if len(line) * 4 > MAX_LINE:
        line = line.encode()[:MAX_LINE].decode(errors="ignore")
    return line
