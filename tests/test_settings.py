"""Typed fields: what they take, how they are listed, put together, and named as options."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from dragonrt.modes import MODES
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import LinkSettings, NetworkSettings
from dragonrt.node.connections.admission import CloudLimits
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.http.http_settings import HttpSettings
from dragonrt.settings import (
    ENCODABLE,
    FINITE,
    U64,
    LongText,
    Positive,
    SettingError,
    Text,
    assemble,
    check,
    entries,
    flat,
    hints,
    must,
    read,
    setting,
    traced,
)
from dragonrt.wire.messages import CONNECTION_MESSAGES, SESSION_MESSAGES

WHOLE = Annotated[int, Meta(ge=1, le=5)]
NUMBER = Annotated[float, Meta(ge=-FINITE, le=FINITE)]
TEXTS = Annotated[tuple[LongText, ...], Meta(max_length=2)] | None


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    """Settings inside others."""

    heat: Annotated[float, Meta(ge=0, le=2)] = setting(1.0, "How hot.")
    size: Positive = setting(3, "How large.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """One field of every kind."""

    name: Annotated[str, Meta(max_length=4, pattern=ENCODABLE)] = setting(
        "x", "What it is called.", traced=False
    )
    inner: Inner = Inner(heat=0.5)
    colour: Colour = setting(Colour.RED, "Which.")
    way: Literal["up", "down"] = setting("up", "Where to.")
    place: Path | None = setting(None, "Where it is.")
    places: Annotated[tuple[Path, ...], Meta(max_length=2)] = setting(
        (), "Where they are.", option="all_places"
    )
    pairs: tuple[tuple[Text, int], ...] = setting((), "Which belong together.")
    on: bool = setting(True, "Whether.")
    plain: int = 7


def test_fields_are_listed_flat_with_their_defaults() -> None:
    listed = {entry.name: entry for entry in entries(Outer)}
    assert list(listed) == [
        *("name", "heat", "size", "colour", "way", "place", "places", "pairs", "on", "plain")
    ]
    assert (listed["heat"].default, listed["size"].default) == (0.5, 3)
    assert (listed["place"].option, listed["places"].option) == ("--place", "--all-places")
    assert flat(Outer())["colour"] == "red"
    assert "name" not in traced(Outer())


def test_what_is_left_out_has_its_default_in_the_nested_too() -> None:
    assert assemble(Outer, {}) == Outer()
    made = assemble(Outer, {"size": 5, "colour": "blue", "place": Path("a")})
    assert made == Outer(inner=Inner(0.5, 5), colour=Colour.BLUE, place=Path("a"))
    assert made.colour is Colour.BLUE


def test_what_is_listed_can_be_put_together_again() -> None:
    outer = Outer(inner=Inner(2.0, 9), places=(Path("a"), Path("b")), pairs=(("a", 1),), on=False)
    assert assemble(Outer, flat(outer)) == outer


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("name", each) for each in ("longer", "\ud800", 3)),
        *(("heat", each) for each in (2.5, float("nan"), "hot", True)),
        *(("size", each) for each in (0, 2**64, 1.0, True, None)),
        *(("colour", "green"), ("way", "left"), ("place", "a"), ("on", 1), ("plain", 2**64)),
        *(("all_places", each) for each in ((Path("a"),) * 3, ("a",))),
        *(("pairs", each) for each in ((("a",),), (("a", "b"),), (("\ud800", 1),))),
    ],
)
def test_what_a_field_does_not_take_is_named(name: str, value: Any) -> None:
    with pytest.raises(SettingError) as caught:
        assemble(Outer, {name.removeprefix("all_"): value})
    assert caught.value.name == name
    assert "\n" not in str(caught.value)


def test_there_are_no_other_fields() -> None:
    with pytest.raises(SettingError):
        assemble(Outer, {"colours": "red"})


def test_an_instance_is_held_to_its_fields() -> None:
    check(Outer())
    with pytest.raises(SettingError) as caught:
        check(Outer(inner=Inner(heat=3.0)))
    assert caught.value.name == "heat"


def test_a_field_without_a_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Needy:
        wanted: int

    with pytest.raises(SettingError):
        assemble(Needy, {})
    assert assemble(Needy, {"wanted": 2}) == Needy(2)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((WHOLE, 5), (NUMBER, -1e300), (TEXTS, ("é", "")), (TEXTS, None)),
        *((bytes, b"AAAA"), (Path, Path("a")), (Literal["a", "b"], "b")),
        (U64, 2**64 - 1),
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
        (U64, 2**64),
        (U64, -1),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(kind: Any, value: Any) -> None:
    with pytest.raises(SettingError) as caught:
        read(kind, value)
    assert "\n" not in str(caught.value)
    assert repr(value)[:37] in str(caught.value)


def test_every_field_says_its_bounds() -> None:
    kinds = [
        hints(message)[name]
        for message in (*CONNECTION_MESSAGES, *SESSION_MESSAGES)
        for name in message.__struct_fields__
    ]
    classes = (Question, SideSettings, NetworkSettings, LinkSettings, CloudLimits, HttpSettings)
    classes += tuple(mode.settings for mode in MODES.values())
    kinds += [entry.within for each in classes for entry in entries(each)]
    words = [must(kind) for kind in kinds]
    assert all(words)
    assert not [each for each in words if "None" in each], "a length without a limit"
