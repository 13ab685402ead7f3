"""How estimates are drawn: the style of pictures, and lines and bars with their intervals.

Colours are those that colour-blind people can tell. Needs matplotlib.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonrt.errors import DragonError
from scripts.lab.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES = 8.0
DOTS_PER_INCH = 200
"""1600 pixels wide: sharp where a README shows 800."""

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, BLACK, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#000000", "#8A8A8A"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK, GREY, YELLOW)
"""Okabe and Ito's palette, in the order of the lines."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SIDE_COLOURS = {"device": BLUE, "cloud": ORANGE}

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "figure.titlesize": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@contextmanager
def picture(
    path: Path,
    *,
    rows: int = 1,
    columns: int = 1,
    height_inches: float = 4.0,
    legend: int = 0,
    **subplots: Any,
) -> "Iterator[tuple[Figure, Any]]":
    """Yield a figure and its axes, an array [rows, columns]; write it to `path` at the end.

    With `legend` columns, the labels of the first axes stand below all panels. `subplots` are
    further arguments of Figure.subplots. Raises DragonError without matplotlib or if the file
    cannot be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.rcsetup import cycler
    except ImportError:
        raise DragonError("pictures need matplotlib: pip install matplotlib") from None
    with matplotlib.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure = Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **subplots)
        yield figure, axes
        if legend:
            handles, labels = axes.flat[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=legend)
        try:
            figure.savefig(path, format="png", dpi=DOTS_PER_INCH)
        except OSError as error:
            raise DragonError(f"cannot write {path}: {error.strerror}") from None


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
