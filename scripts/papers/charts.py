"""How estimates are drawn: lines, bands and bars with their intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonrt.experiments.picture import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    MARKERS,
    ORANGE,
    PURPLE,
    SIDE_COLOURS,
    SKY,
    VERMILION,
    YELLOW,
    picture,
)
from scripts.papers.intervals import Interval

__all__ = [
    "BLACK",
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "MARKERS",
    "ORANGE",
    "PURPLE",
    "SIDE_COLOURS",
    "SKY",
    "VERMILION",
    "YELLOW",
    "Look",
    "Looks",
    "band",
    "bars",
    "lines",
    "looks",
    "picture",
]


@dataclass(frozen=True, slots=True)
class Look:
    """How one series looks; without a marker or a line (""), the other alone is drawn."""

    colour: str
    marker: str = ""
    line: str = "-"
    filled: bool = True
    label: str | None = None

    def style(self, name: Any = None) -> dict[str, Any]:
        """matplotlib's arguments for it; it is called `name` where it has no label."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "markerfacecolor": None if self.filled else "none",
            "label": self.label or name,
        }


Looks = Mapping[Any, Look]
"""The series of a panel by name, in the order in which they are drawn."""


def looks(names: Iterable[Any], **same: Any) -> dict[Any, Look]:
    """A colour and a marker of its own for every name, in their order; `same` for all of them."""
    return {
        name: replace(Look(COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]), **same)
        for number, name in enumerate(names)
    }


def errors(points: Iterable[Interval]) -> tuple[list[float], list[float]]:
    """How far each interval reaches below and above its value, as matplotlib's error bars want."""
    points = list(points)
    below = [max(0.0, each.value - each.low) for each in points]
    return below, [max(0.0, each.high - each.value) for each in points]


def lines(
    axis: Any,
    found: Mapping[tuple[Any, ...], Interval],
    looks: Looks,
    *,
    apart: float = 0.0,
    intervals: bool = True,
) -> None:
    """A line of each look's name through the estimates of `found`, whose keys are (name, x).

    `apart` moves each line so far to the right of the one before it, that intervals do not hide
    each other; the lines are around x together. Names without estimates are left out.
    """
    for number, (name, look) in enumerate(looks.items()):
        points = sorted((key[1], each) for key, each in found.items() if key[0] == name)
        if not points:
            continue
        shift = apart * (number - (len(looks) - 1) / 2)
        ends = errors(each for _, each in points)
        axis.errorbar(
            [x + shift for x, _ in points],
            [each.value for _, each in points],
            yerr=ends if intervals and any(map(any, ends)) else None,
            elinewidth=0.8,
            capsize=2,
            **look.style(name),
        )


def band(axis: Any, points: Mapping[Any, Interval], colour: str) -> None:
    """The intervals of one line as a pale band, where bars of all lines would hide each other."""
    xs = sorted(points)
    axis.fill_between(
        xs,
        [points[x].low for x in xs],
        [points[x].high for x in xs],
        color=colour,
        alpha=0.12,
        linewidth=0,
    )


def bars(
    axis: Any,
    found: Mapping[tuple[Any, ...], Interval],
    looks: Looks,
    places: Sequence[Any],
    *,
    horizontal: bool = False,
) -> None:
    """For each of `places` a group of bars, one of each look's name; keys are (name, place).

    Horizontal ones begin at the top.
    """
    width = 0.8 / len(looks)
    draw, ends_of = (axis.barh, "xerr") if horizontal else (axis.bar, "yerr")
    for number, (name, look) in enumerate(looks.items()):
        shift = (number - (len(looks) - 1) / 2) * width
        at = [
            (index, found[name, place])
            for index, place in enumerate(places)
            if (name, place) in found
        ]
        ends = errors(each for _, each in at)
        draw(
            [index + shift for index, _ in at],
            [each.value for _, each in at],
            width,
            color=look.colour,
            label=look.label or name,
            error_kw={"elinewidth": 0.8, "capsize": 2},
            **({ends_of: ends} if any(map(any, ends)) else {}),
        )
    labels = [f"{place:g}" if isinstance(place, float) else f"{place}" for place in places]
    if horizontal:
        axis.set_yticks(range(len(places)), labels)
        axis.set_ylim(len(places) - 0.5, -0.5)
    else:
        axis.set_xticks(range(len(places)), labels)
        axis.grid(axis="x", visible=False)
