"""The style of pictures: size, font, grid, legends, colours that colour-blind people can tell.

Needs matplotlib.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonrt.errors import DragonError

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
