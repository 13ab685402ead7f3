"""`ttft`: the time to the first token (DRAGON Fig. 7).

From the question on, retrieval included, two and four documents a side. CRCG and DRCG/Text prefill
the documents' texts, DRCG/KV fetches the cloud's stored KV; DRAGON loads each side's own. The extra
round trip lies half in each direction, jitter a fifth of it, 50 Mbit/s. The bundled model prefills
a document in milliseconds and its KV is small, so ratios stay far below those of 1.3B parameters.

With a cloud that already runs elsewhere nothing is emulated: one round trip, the measured one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragonrt import bundled
from scripts.papers import charts
from scripts.papers.dragon.baselines.device import Asked
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Interval, Row, distinct, estimates, grouped
from scripts.papers.lineup import measured

NAME = "ttft"
SUMMARY = "Time to the first token of DRAGON and of its baselines (DRAGON Fig. 7; 12 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

DRAGON = "DRAGON"
METHODS = ("CRCG/device", "CRCG/cloud", "DRCG/Text", "DRCG/KV", DRAGON)
DOCUMENTS = (2, 4)
ROUND_TRIPS_MS = (0, 100, 200, 300)
COLUMNS = (
    "method",
    "round_trip_ms",
    "documents",
    "question",
    "repeat",
    "first_ms",
    "wire_bytes",
)
REPORTED = {"DRCG/Text": 8.6, "DRCG/KV": 15.3}
"""Times DRAGON's, on average over its networks, with OPT-1.3B and Qwen2.5-1.5B."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per answer; quick has every other round trip. Each repeat has three questions."""

    questions = [question.text for question in bundled.questions() if question.demo][:3]
    round_trips = ROUND_TRIPS_MS[::3] if settings.quick else ROUND_TRIPS_MS
    asked: list[tuple[Asked, Row]] = [
        (
            Asked(question, documents, settings.seed, 0.0, 1),
            {"documents": documents, "question": number, "repeat": repeat},
        )
        for repeat in range(settings.repeats)
        for number, question in enumerate(questions)
        for documents in DOCUMENTS
    ]
    return [
        {name: row[name] for name in COLUMNS}
        for row in measured(settings, METHODS, round_trips, asked, progress)
    ]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Medians, bytes, and each method's time over DRAGON's, averaged over the round trips."""
    times = estimates(rows, "first_ms", "documents", "method", "round_trip_ms")
    sent = estimates(rows, "wire_bytes", "documents", "method")
    round_trips = sorted({row["round_trip_ms"] for row in rows})
    summary: dict[str, Any] = {"times DRAGON's, as reported": REPORTED}
    for documents in sorted({row["documents"] for row in rows}):
        summary[f"{documents} documents a side"] = {
            name: {
                "ms": {f"{ms} ms": times[documents, name, ms].to_json() for ms in round_trips},
                "median wire bytes": sent[documents, name].value,
                "times DRAGON's": {
                    f"{ms} ms": _ratio(times, documents, name, [ms]) for ms in round_trips
                }
                | {"mean": _ratio(times, documents, name, round_trips)},
            }
            for name in distinct(rows, "method")
        }
    return summary


def _ratio(
    times: dict[tuple[Any, ...], Interval], documents: int, name: str, round_trips: Sequence[int]
) -> float:
    ratios = [
        times[documents, name, ms].value / times[documents, DRAGON, ms].value for ms in round_trips
    ]
    return round(sum(ratios) / len(ratios), 3)


def plot(rows: list[Row], path: Path) -> None:
    """Bars by round trip, a panel for each number of documents; medians with 95 % intervals.

    A single round trip is a measured one.
    """
    panels = sorted(grouped(rows, "documents").items())
    round_trips, names = sorted(distinct(rows, "round_trip_ms")), distinct(rows, "method")
    what = "extra" if len(round_trips) > 1 else "measured"
    looks = {name: charts.Look(COLOURS[name]) for name in names}
    with charts.picture(
        path, columns=len(panels), height_inches=4.2, legend=len(names), sharey=True
    ) as (figure, axes):
        for axis, ((documents,), some) in zip(axes[0], panels, strict=True):
            found = estimates(some, "first_ms", "method", "round_trip_ms")
            charts.bars(axis, found, looks, round_trips)
            axis.set(title=f"{documents} documents a side", xlabel=f"{what} round trip (ms)")
        figure.suptitle(rows[0]["model"])
        axes[0, 0].set_ylabel("time to the first token (ms)\nmedian, 95 %")


COLOURS = dict(
    zip(
        METHODS,
        (charts.GREY, charts.GREEN, charts.SKY, charts.PURPLE, charts.ORANGE),
        strict=True,
    )
)
