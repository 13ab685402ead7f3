"""Types with bounds, of messages, settings and traces: msgspec checks them, the words are ours.

A type is an annotation, its bounds are a `Meta`, whose `description` replaces the words that follow
from the type. A bool is not a number, NaN and the infinities are not in any range.
"""

import sys
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from msgspec import Meta, ValidationError, convert

from dragonrt.errors import DragonError

LARGEST: Final = 2**64 - 1
"""The largest integer, as in msgpack; msgspec's bounds end at 63 bits."""
LONGEST_TEXT: Final = 64 * 1024
"""Characters of a text inside a tuple."""
FINITE: Final = sys.float_info.max
ENCODABLE: Final = r"\A[^\ud800-\udfff]*\Z"
"""The pattern of texts that UTF-8 can encode."""
BUILTIN: Final = (bytes,)
"""For msgspec: bytes are never a text in base64."""
UNIONS: Final = (typing.Union, types.UnionType)


class MismatchError(DragonError):
    """A value is not of its type; the line says what it must be."""


def bounded(kind: Any, low: float | None, high: float | None, limit: int) -> Any:
    """Return the type with a range for its numbers, and a limit of characters or of entries."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return typing.Union[tuple(bounded(each, low, high, limit) for each in inner)]  # noqa: UP007
    if origin is tuple:
        of = tuple(
            each if each is ... else bounded(each, low, high, LONGEST_TEXT) for each in inner
        )
        made = types.GenericAlias(tuple, of)
        return Annotated[made, Meta(max_length=limit)] if inner[-1] is ... else made
    if kind is str:
        return Annotated[str, Meta(max_length=limit, pattern=ENCODABLE)]
    if kind is int:
        return Annotated[int, natural(low) if high == LARGEST else Meta(ge=low, le=high)]
    if kind is float:
        least, most = (-FINITE if low is None else low), (FINITE if high is None else high)
        return Annotated[float, Meta(ge=least, le=most)]
    return kind


def natural(low: float | None = 0) -> Meta:
    """Return the bounds of an integer from `low` to LARGEST."""
    return Meta(ge=low, description=f"an integer from {low} to {LARGEST}")


def read(kind: Any, value: Any) -> Any:
    """Return the value as that type. Raises MismatchError."""
    try:
        made = convert(value, kind, builtin_types=BUILTIN)
    except ValidationError:
        pass
    else:
        if type(made) is not int or made <= LARGEST:
            return made
    shown = repr(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    raise MismatchError(f"must be {must(kind)}, not {shown}")


def must(kind: Any) -> str:
    """Return what a value of that type must be, in words."""
    bounds = Meta()
    if get_origin(kind) is Annotated:
        kind, bounds, *_ = get_args(kind)
    if bounds.description is not None:
        return bounds.description
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        origin, inner = Literal, tuple(each.value for each in kind)
    if origin in UNIONS:
        return must(next(each for each in inner if each is not types.NoneType))
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin is tuple and inner[-1] is ...:
        return f"a tuple of at most {bounds.max_length} entries, each {must(inner[0])}"
    if origin is tuple:
        return f"a tuple of {len(inner)} entries: {', '.join(map(must, inner))}"
    if kind in (int, float):
        return ("an integer" if kind is int else "a number") + _range(bounds.ge, bounds.le)
    if kind is bytes:
        low, high = bounds.min_length or 0, bounds.max_length
        return f"{high} bytes" if low == high else f"{low} to {high} bytes"
    text = f"text of at most {bounds.max_length} characters"
    return {bool: "true or false", Path: "a path", str: text}.get(kind, f"a {kind.__name__}")


def _range(low: Any, high: Any) -> str:
    low, high = (n if n is None or isinstance(n, int) else f"{n:g}" for n in (low, high))
    if high in (None, f"{FINITE:g}"):
        return "" if low in (None, f"{-FINITE:g}") else f" of at least {low}"
    return f" from {low} to {high}"
