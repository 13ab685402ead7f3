"""Values of a type, within its bounds: strategies for the fields of messages and of events."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

from hypothesis import strategies as st

Values = st.SearchStrategy[Any]
PRINTABLE = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)


def of_kind(
    kind: Any, anything: Values, instances: Callable[[Any], Values] = st.from_type
) -> Values:
    """Values of a field; `anything` where it may have any, `instances` of a class."""

    def of(kind: Any) -> Values:
        return of_kind(kind, anything, instances)

    origin, within, meta = get_origin(kind), get_args(kind), None
    if origin is Annotated:
        kind, meta = within[:2]
        origin, within = get_origin(kind), get_args(kind)
    least, most = getattr(meta, "min_length", None) or 0, getattr(meta, "max_length", None) or 30
    if kind is str:
        named = getattr(meta, "pattern", None) is not None
        return PRINTABLE if named else st.text(max_size=min(most, 30))
    if kind is bytes:
        return st.binary(min_size=least, max_size=max(least, min(most, 30)))
    if kind is int:
        low, high = (getattr(meta, bound, None) for bound in ("ge", "le"))
        # What msgpack can carry; a bound of 2**64 - 1 cannot be written as msgspec's own.
        return st.integers(-(2**63) if low is None else low, 2**64 - 1 if high is None else high)
    if kind is float:
        bounds = getattr(meta, "ge", None), getattr(meta, "le", None)
        return st.floats(*bounds, allow_nan=False)
    if kind is Any:
        return anything
    if origin is tuple and within[1:] != (...,):
        return st.tuples(*map(of, within))
    if origin is tuple:
        return st.lists(of(within[0]), max_size=5).map(tuple)
    if origin is Mapping:
        return st.dictionaries(st.text(), of(within[1]))
    if origin is Literal:
        return st.sampled_from(within)
    if within:
        return st.one_of(*map(of, within))
    known = kind in (bool, type(None)) or issubclass(kind, Enum)
    return st.from_type(kind) if known else instances(kind)
