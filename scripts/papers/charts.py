"""How estimates are drawn: lines and bars with their intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scripts.lab.intervals import Interval
from scripts.lab.picture import BLACK as BLACK
from scripts.lab.picture import BLUE as BLUE
from scripts.lab.picture import COLOURS as COLOURS
from scripts.lab.picture import GREEN as GREEN
from scripts.lab.picture import GREY as GREY
from scripts.lab.picture import MARKERS as MARKERS
from scripts.lab.picture import ORANGE as ORANGE
from scripts.lab.picture import PURPLE as PURPLE
from scripts.lab.picture import SIDE_COLOURS as SIDE_COLOURS
from scripts.lab.picture import SKY as SKY
from scripts.lab.picture import VERMILION as VERMILION
from scripts.lab.picture import YELLOW as YELLOW
from scripts.lab.picture import picture as picture


@dataclass(frozen=True, slots=True)
class Look:
    """How one series looks; without a marker or a line (""), the other alone is drawn."""

    colour: str
    marker: str = ""
    line: str = "-"
    filled: bool = True
    label: str | None = None

    def style(self, name: Any = None) -> dict[str, Any]:
        """Return matplotlib's arguments; the series is called `name` if it has no label."""
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
    """Return a colour and a marker for every name, in their order; `same` for all of them."""
    return {
        name: replace(Look(COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]), **same)
        for number, name in enumerate(names)
    }


def errors(points: Sequence[Interval]) -> tuple[list[float], list[float]]:
    """Return how far each interval reaches below and above its value."""
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
    """Draw a line of each look's name through the estimates of `found`, whose keys are (name, x).

    `apart` is the distance of neighbouring lines, so that intervals do not hide each other. Names
    without estimates are left out.
    """
    for number, (name, look) in enumerate(looks.items()):
        points = sorted((key[1], each) for key, each in found.items() if key[0] == name)
        if not points:
            continue
        shift = apart * (number - (len(looks) - 1) / 2)
        ends = errors([each for _, each in points])
        axis.errorbar(
            [x + shift for x, _ in points],
            [each.value for _, each in points],
            yerr=ends if intervals and any(map(any, ends)) else None,
            elinewidth=0.8,
            capsize=2,
            **look.style(name),
        )


def bars(
    axis: Any,
    found: Mapping[tuple[Any, ...], Interval],
    looks: Looks,
    places: Sequence[Any],
    *,
    horizontal: bool = False,
) -> None:
    """Draw a group of bars at each place, one of each look's name; keys are (name, place)."""
    width = 0.8 / len(looks)
    draw, ends_of = (axis.barh, "xerr") if horizontal else (axis.bar, "yerr")
    for number, (name, look) in enumerate(looks.items()):
        shift = (number - (len(looks) - 1) / 2) * width
        at = {
            index + shift: found[name, place]
            for index, place in enumerate(places)
            if (name, place) in found
        }
        ends = errors(list(at.values()))
        draw(
            list(at),
            [each.value for each in at.values()],
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
