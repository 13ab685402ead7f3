"""Types with bounds: what they take, and that every field's are said in words."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from dragonrt.modes import MODES
from dragonrt.schema import MismatchError, bounded, must, natural, read
from dragonrt.settings import entries
from dragonrt.wire.encoding import types
from dragonrt.wire.messages import CONNECTION_MESSAGES, SESSION_MESSAGES

WHOLE = bounded(int, 1, 5, 0)
NUMBER = bounded(float, None, None, 0)
TEXTS = bounded(tuple[str, ...] | None, None, None, 2)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((WHOLE, 5), (NUMBER, -1e300), (TEXTS, ("é", "")), (TEXTS, None)),
        *((bytes, b"AAAA"), (Path, Path("a")), (Literal["a", "b"], "b")),
        (Annotated[int, natural()], 2**64 - 1),
    ],
)
def test_what_fits_is_returned(kind: Any, value: Any) -> None:
    assert read(kind, value) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((WHOLE, 0), (WHOLE, 6), (WHOLE, True), (WHOLE, 1.0), (WHOLE, "1"), (WHOLE, None)),
        *((NUMBER, float("nan")), (NUMBER, float("inf")), (NUMBER, False)),
        *((TEXTS, "ab"), (TEXTS, ("a", 1)), (TEXTS, ("",) * 3), (TEXTS, ("\ud800",))),
        *((bytes, "AAAA"), (Path, "a"), (Literal["a", "b"], "c")),
        (Annotated[bytes, Meta(max_length=1)], b"ab"),
        (Annotated[int, natural()], 2**64),
        (Annotated[int, natural()], -1),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(kind: Any, value: Any) -> None:
    with pytest.raises(MismatchError) as caught:
        read(kind, value)
    assert "\n" not in str(caught.value)
    assert repr(value)[:37] in str(caught.value)


def test_every_field_of_a_message_and_of_a_setting_says_its_bounds() -> None:
    kinds = [
        types(message)[name]
        for message in (*CONNECTION_MESSAGES, *SESSION_MESSAGES)
        for name in message.__struct_fields__
    ]
    kinds += [entry.within for mode in MODES.values() for entry in entries(mode.settings)]
    words = [must(kind) for kind in kinds]
    assert all(words)
    assert not [each for each in words if "None" in each], "a length without a limit"
