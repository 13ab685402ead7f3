"""Fields of settings: what they take, how they are listed, put together, and named as options."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest

from dragonrt.settings import SettingError, assemble, check, entries, flat, setting, traced


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    """Settings inside others."""

    heat: float = setting(1.0, "How hot.", low=0, high=2)
    size: int = setting(3, "How large.", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """One field of every kind."""

    name: str = setting("x", "What it is called.", limit=4, traced=False)
    inner: Inner = Inner(heat=0.5)
    colour: Colour = setting(Colour.RED, "Which.")
    way: Literal["up", "down"] = setting("up", "Where to.")
    place: Path | None = setting(None, "Where it is.")
    places: tuple[Path, ...] = setting((), "Where they are.", limit=2, option="all_places")
    pairs: tuple[tuple[str, int], ...] = setting((), "Which belong together.")
    on: bool = setting(True, "Whether.")
    plain: int = 7


def test_fields_are_listed_flat_with_the_defaults_they_have_there() -> None:
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
        ("name", "longer"),
        ("name", "\ud800"),
        ("name", 3),
        ("heat", 2.5),
        ("heat", float("nan")),
        ("heat", "hot"),
        ("heat", True),
        ("size", 0),
        ("size", 2**64),
        ("size", 1.0),
        ("size", True),
        ("size", None),
        ("colour", "green"),
        ("way", "left"),
        ("place", "a"),
        ("all_places", (Path("a"),) * 3),
        ("all_places", ("a",)),
        ("pairs", (("a",),)),
        ("pairs", (("a", "b"),)),
        ("pairs", (("\ud800", 1),)),
        ("on", 1),
        ("plain", 2**64),
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
        wanted: int = setting(help="Needed.")

    with pytest.raises(SettingError):
        assemble(Needy, {})
    assert assemble(Needy, {"wanted": 2}) == Needy(2)
