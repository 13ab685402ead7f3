"""`ttft`: the time to the first token (DRAGON Fig. 7).

From the question on, retrieval included, two and four documents a side. CRCG and DRCG/Text prefill
the documents' texts, DRCG/KV fetches the cloud's stored KV; DRAGON loads each side's own. Links are
those of `latency`. A small model prefills a document in milliseconds and its KV is small, so ratios
stay far below those of 1.3B parameters.
"""

from itertools import product
from pathlib import Path
from typing import Any

from dragonrt import bundled
from scripts.papers import charts
from scripts.papers.dragon.baselines.reading import Asked
from scripts.papers.dragon.latency import LOOKS
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, distinct, estimates, grouped, tree
from scripts.papers.lineup import DRAGON, measured

NAME = "ttft"
SUMMARY = "Time to the first token of DRAGON and of its baselines (DRAGON Fig. 7; 12 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

METHODS = ("CRCG/device", "CRCG/cloud", "DRCG/Text", "DRCG/KV", DRAGON)
DOCUMENTS = (2, 4)
ROUND_TRIPS_MS, ROUND_TRIPS_QUICK_MS = (0, 100, 200, 300), (0, 300)
COLUMNS = (
    *("method", "round_trip_ms", "documents", "question", "repeat", "first_ms", "wire_bytes"),
)
REPORTED = {"DRCG/Text": 8.6, "DRCG/KV": 15.3}
"""Times DRAGON's, on average over its networks, with OPT-1.3B and Qwen2.5-1.5B."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per answer; each repeat has three questions."""
    questions = [question.text for question in bundled.questions() if question.demo][:3]
    asked: list[tuple[Asked, Row]] = [
        (
            Asked(question, documents, settings.seed, 0.0, 1),
            {"documents": documents, "question": number, "repeat": repeat},
        )
        for repeat, (number, question), documents in product(
            range(settings.repeats), enumerate(questions), DOCUMENTS
        )
    ]
    round_trips = settings.size(ROUND_TRIPS_MS, ROUND_TRIPS_QUICK_MS)
    rows = measured(settings, METHODS, round_trips, asked, progress)
    return [{name: row[name] for name in COLUMNS} for row in rows]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return medians, bytes, and each method's time over DRAGON's, also as a mean."""
    summary: dict[str, Any] = {"times DRAGON's, as reported": REPORTED}
    for (documents,), some in sorted(grouped(rows, "documents").items()):
        times = estimates(some, "first_ms", "method", "round_trip_ms")
        found: dict[str, Any] = summary.setdefault(f"{documents} documents a side", {})
        for (name,), sent in estimates(some, "wire_bytes", "method").items():
            own = {ms: each for (one, ms), each in sorted(times.items()) if one == name}
            ratios = {ms: each.value / times[DRAGON, ms].value for ms, each in own.items()}
            found[name] = {
                "ms": tree({(ms,): each for ms, each in own.items()}, "{} ms"),
                "median wire bytes": sent.value,
                "times DRAGON's": {f"{ms} ms": round(ratio, 3) for ms, ratio in ratios.items()}
                | {"mean": round(sum(ratios.values()) / len(ratios), 3)},
            }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Draw bars by round trip, a panel for each number of documents; medians with intervals.

    A single round trip is a measured one.
    """
    panels = sorted(grouped(rows, "documents").items())
    round_trips, names = sorted(distinct(rows, "round_trip_ms")), distinct(rows, "method")
    what = "extra" if len(round_trips) > 1 else "measured"
    looks = {name: charts.Look(LOOKS[name].colour) for name in names}
    size: dict[str, Any] = {"columns": len(panels), "height_inches": 4.2, "legend": len(names)}
    with charts.picture(path, **size, sharey=True) as (figure, axes):
        for axis, ((documents,), some) in zip(axes[0], panels, strict=True):
            found = estimates(some, "first_ms", "method", "round_trip_ms")
            charts.bars(axis, found, looks, round_trips)
            axis.set(title=f"{documents} documents a side", xlabel=f"{what} round trip (ms)")
        figure.suptitle(rows[0]["model"])
        axes[0, 0].set_ylabel("time to the first token (ms)\nmedian, 95 %")
