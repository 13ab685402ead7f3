"""The pipelines of both sides as a picture (DRAGON Fig. 9), from a timeline.

`python -m scripts.papers.dragon.pipeline_picture OUT.png SESSION TRACE [TRACE]` draws one answer
of the traces of one side, or of both, recorded on one machine.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dragonrt.side import SIDES, Side
from dragonrt.traces.file import read_trace
from scripts.papers import charts
from scripts.papers.dragon.timeline import Flight, Forward, Timeline, by_side, timeline

SHOWN_TOKENS = 16
"""Further tokens would be too narrow to read."""
LETTER = 0.0115
"""The width of a digit as a part of the picture's."""
COLOURS = {
    "draft": charts.GREEN,
    "block": charts.GREEN,
    "target": charts.BLACK,
    "verdict": charts.BLACK,
    "other": charts.GREY,
}
REJECTED = charts.VERMILION
TALL, LOW, GAP = 1.0, 0.34, 0.12
"""Heights of a bar of decoding, of a bar of transmission, and what is between bars."""
HIGHEST = 2.0
"""All bars of transmission of a side together: where there are many, they are lower."""


def draw_pipeline(timeline: Timeline, path: Path) -> None:
    """Draw the answer's first tokens. Raises DragonError if the file cannot be written.

    From above: what the cloud decoded and sent, what the device decoded and sent, the round trip,
    ΔZ of the device (with a single aggregator), and the acceptance so far.
    """
    shown = timeline.decisions[:SHOWN_TOKENS]
    end_s = shown[-1].time_s + 0.02 * (shown[-1].time_s - shown[0].time_s)
    first_s = min(each.start_s for track in timeline.tracks.values() for each in track.forwards)
    start_s = first_s - 0.02 * (end_s - first_s)  # loading and reading are no part of the pipeline
    panels = 4 if timeline.estimates else 3
    shared: Any = {"sharex": True, "height_ratios": [5.2] + [1.0] * (panels - 1)}
    height = 4.2 + 1.1 * (panels - 1)
    with charts.picture(path, rows=panels, height_inches=height, **shared) as (_, grid):
        axes = grid[:, 0]
        _draw_tracks(axes[0], timeline, (start_s, end_s))
        _draw_rtt(axes[1], timeline)
        if timeline.estimates:
            _draw_difference(axes[2], timeline, end_s)
        _draw_acceptance(axes[-1], timeline)
        axes[-1].set_xlabel("seconds since the question")
        axes[0].set_xlim(start_s, end_s)


def _draw_tracks(axes: Any, timeline: Timeline, span: tuple[float, float]) -> None:
    top = 0.0
    places: dict[str, float] = {}
    for side in reversed(SIDES):
        if side not in timeline.tracks:
            continue
        track, colour = timeline.tracks[side], charts.SIDE_COLOURS[side]
        base = top - TALL
        _draw_forwards(axes, track.forwards, side, base, span)
        for decision in track.decisions:
            found = REJECTED if decision.event.accepted(side) is False else charts.BLACK
            axes.plot(decision.time_s, top + 0.16, marker="v", markersize=4.5, color=found)
        for start_s, stop_s in track.stopped:
            axes.broken_barh(
                [(start_s, stop_s - start_s)], (base, TALL), facecolor=colour, alpha=0.3
            )
            axes.plot(stop_s, base + TALL / 2, marker="x", markersize=5, color=REJECTED)
        flights = [each for each in timeline.flights if each.sent.side == side]
        lanes = _stacked(each for each in flights if each.sent.t < span[1])
        height = min(LOW, HIGHEST / max(len(lanes), 1))
        for lane, flights in enumerate(lanes):
            _draw_flights(axes, flights, base - GAP - (lane + 1) * height, height)
        low = base - GAP - max(len(lanes), 1) * height
        places |= {f"{side}\ndecodes": base + TALL / 2, f"{side}\nsends": (base - GAP + low) / 2}
        top = low - 5 * GAP
    for switch in timeline.switches:
        axes.axvline(switch.time_s, color=charts.PURPLE, linestyle=":")
    axes.set_ylim(top, 0.4)
    axes.set_yticks([*places.values()], [*places])
    axes.grid(visible=False, axis="y")
    axes.set_title(timeline.title, loc="left")
    _legend(axes, timeline)


def _draw_forwards(
    axes: Any, forwards: Sequence[Forward], side: Side, base: float, span: tuple[float, float]
) -> None:
    rejected = {"edgecolor": REJECTED, "linewidth": 1.4, "hatch": "////", "zorder": 3}
    plain = {"edgecolor": "white", "linewidth": 0.5, "zorder": 2}
    for forward in forwards:
        dead, width_s = forward.accepted is None, forward.end_s - forward.start_s
        look = {"facecolor": charts.SIDE_COLOURS[side], "alpha": 0.3 if dead else 1.0}
        look |= rejected if forward.accepted is False else plain
        axes.broken_barh([(forward.start_s, width_s)], (base, TALL), **look)
        last = forward.step + forward.tokens - 1
        text = f"{forward.step}" if forward.tokens == 1 else f"{forward.step}-{last}"
        if width_s > LETTER * len(text) * (span[1] - span[0]) and forward.end_s <= span[1]:
            colour = charts.BLACK if dead or side == "cloud" else "white"
            centre = {"ha": "center", "va": "center", "clip_on": True, "zorder": 4}
            place = forward.start_s + width_s / 2, base + TALL / 2
            axes.text(*place, text, fontsize=6, color=colour, **centre)


def _draw_flights(axes: Any, flights: Sequence[Flight], base: float, height: float) -> None:
    for flight in flights:
        colour, start_s = COLOURS.get(flight.message, COLOURS["other"]), flight.sent.t
        look = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.4}
        axes.broken_barh([(start_s, _end_s(flight) - start_s)], (base, 0.86 * height), **look)
        if flight.arrived is None:  # only the sender's trace is there: when it left
            axes.plot(start_s, base + height / 2, marker=".", color=colour)


def _end_s(flight: Flight) -> float:
    return (flight.arrived or flight.sent).t


def _stacked(flights: Iterable[Flight]) -> list[list[Flight]]:
    """Return the flights in as few lanes as they need not to overlap."""
    lanes: list[list[Flight]] = []
    for flight in sorted(flights, key=lambda each: each.sent.t):
        free = next((lane for lane in lanes if _end_s(lane[-1]) <= flight.sent.t), None)
        if free is None:
            lanes.append(free := [])
        free.append(flight)
    return lanes


def _legend(axes: Any, timeline: Timeline) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def mark(colour: str, marker: str, label: str) -> Any:
        return Line2D([], [], color=colour, marker=marker, linestyle="", label=label)

    some = charts.SIDE_COLOURS[next(iter(timeline.tracks))]
    decides = any(flight.message in ("target", "verdict") for flight in timeline.flights)
    handles: list[Any] = [
        Patch(facecolor=some, label="decoding"),
        Patch(facecolor=some, alpha=0.3, label="of a dropped draft"),
        Patch(facecolor=some, edgecolor=REJECTED, hatch="////", label="draft rejected"),
        Patch(facecolor=COLOURS["draft"], label="draft travels"),
        *([Patch(facecolor=COLOURS["target"], label="target travels")] if decides else []),
        Patch(facecolor=COLOURS["other"], label="other message"),
        mark(charts.BLACK, "v", "target token\n(red: not as drafted)"),
        mark(REJECTED, "x", "forward preempted"),
    ]
    if timeline.switches:
        dotted: Any = {"color": charts.PURPLE, "linestyle": ":"}
        handles.append(Line2D([], [], **dotted, label="aggregator moves"))
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.06)}
    axes.legend(handles=handles, ncols=5, fontsize=8, **above)


def _draw_rtt(axes: Any, timeline: Timeline) -> None:
    samples = [(time_s, 1000 * rtt_s) for time_s, rtt_s in timeline.rtts]
    if samples:
        axes.plot(*zip(*samples, strict=True), marker="o", color=charts.GREY, label="probes")
    expected = [(each.time_s, 1000 * each.event.rtt) for each in timeline.estimates]
    if expected:
        look = {"marker": ".", "color": charts.BLACK, "label": "estimate"}
        axes.step(*zip(*expected, strict=True), where="post", **look)
    if samples or expected:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_ylim(0, 1.25 * max(value for _, value in samples + expected))
    axes.set_ylabel("RTT (ms)")


def _draw_difference(axes: Any, timeline: Timeline, end_s: float) -> None:
    """Draw ΔZ, and who aggregated when."""
    from matplotlib.patches import Patch

    points = [(each.time_s, 1000 * each.event.difference) for each in timeline.estimates]
    axes.step(*zip(*points, strict=True), where="post", marker=".", color=charts.BLACK)
    axes.axhline(0, color=charts.GREY, linewidth=0.8)
    switches = ((each.time_s, each.event.to) for each in timeline.switches)
    moves: list[tuple[float, Side]] = [(0.0, "device"), *switches, (end_s, "device")]
    for (start_s, side), (until_s, _) in pairwise(moves):
        axes.axvspan(start_s, until_s, color=charts.SIDE_COLOURS[side], alpha=0.2, linewidth=0)
    handles = [
        Patch(color=charts.SIDE_COLOURS[side], alpha=0.2, label=f"{side}\naggregates")
        for side in SIDES
    ]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_ylabel("ΔZ (ms)")


def _draw_acceptance(axes: Any, timeline: Timeline) -> None:
    for side in SIDES:
        points: list[tuple[float, float]] = []
        accepted = compared = 0
        for decision in timeline.decisions:
            result = decision.event.accepted(side)
            if result is not None:
                compared += 1
                accepted += result
                points.append((decision.time_s, accepted / compared))
        if points:
            axes.plot(*zip(*points, strict=True), color=charts.SIDE_COLOURS[side], label=side)
    axes.set_ylim(-0.05, 1.05)
    axes.set_ylabel("accepted")
    if axes.lines:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


if __name__ == "__main__":
    path, session, *files = sys.argv[1:]
    traces = by_side([read_trace(Path(each)) for each in files])
    draw_pipeline(timeline(traces, int(session)), Path(path))
