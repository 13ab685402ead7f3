"""`ttft`: the time to the first token (DRAGON Fig. 7).

From the question on, retrieval included, over the links of `latency`. CRCG and DRCG/Text prefill
the documents' texts, DRCG/KV fetches the cloud's stored KV; DRAGON loads each side's own.
"""

from itertools import product
from pathlib import Path
from typing import Any

from dragonrt import bundled
from scripts.lab.intervals import Row, distinct, estimates, grouped, table
from scripts.papers import charts
from scripts.papers.dragon.baselines.reading import Asked
from scripts.papers.dragon.latency import LOOKS
from scripts.papers.framework import Clock, Progress, Settings
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
    """Return medians, and each method's time over DRAGON's as a mean over round trips."""
    summary: dict[str, Any] = {
        "times DRAGON's, as reported": REPORTED,
        "ms": table(rows, "documents", "method", "round_trip_ms", median=["first_ms"]),
        "bytes": table(rows, "documents", "method", median=["wire_bytes"]),
    }
    for (documents,), some in sorted(grouped(rows, "documents").items()):
        times = estimates(some, "first_ms", "method", "round_trip_ms")
        ratios: dict[str, list[float]] = {}
        for (name, ms), each in times.items():
            ratios.setdefault(name, []).append(each.value / times[DRAGON, ms].value)
        summary[f"times DRAGON's, {documents} documents a side"] = {
            name: round(sum(all_) / len(all_), 3) for name, all_ in ratios.items()
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Draw bars by round trip, a panel for each number of documents; medians with intervals."""
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
