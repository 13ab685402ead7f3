"""`latency`: milliseconds per token over the round trip, for all ways of answering (DRAGON Fig. 6).

Twenty tokens, two documents a side. The extra round trip lies half in each direction, jitter a
fifth of it, 50 Mbit/s. On the real clock two more processes on loopback are the clouds; on the
virtual clock the same models' real distributions meet a decoding delay of 50 ms on both sides.
Times are from the question to the last token, over the tokens: retrieval and prefill are in them.
DRDG/SW shows no token before the last one is there; where scores travel instead of the paper's
distributions it is cheap by that measure.

With a cloud that already runs elsewhere nothing is emulated: one round trip, the measured one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragonrt import bundled
from scripts.papers import charts
from scripts.papers.dragon.baselines.device import Asked
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import (
    Interval,
    Row,
    distinct,
    estimates,
    grouped,
    having,
    mean,
)
from scripts.papers.lineup import ALL, measured

NAME = "latency"
SUMMARY = "ms per token of all baselines and ours over the round trip (DRAGON Fig. 6; 20 minutes)"
CLOCKS: tuple[Clock, ...] = ("real", "virtual")

TOKENS, DOCUMENTS = 20, 2
DECODE_S = 0.05
"""Of one draft on either side, on the virtual clock."""
ROUND_TRIPS_MS = (0, 100, 200, 300)
TEMPERATURES = (0.0, 0.8)

SW, TW, PUBLISHED = "DRDG/SW", "DRDG/TW", "DRAGON"
COUPLED, OURS = "coupled, greedy", "coupled, leaderless"


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per answer: method, extra round trip, temperature, times, bytes and acceptance.

    A quick run has the first and the last round trip, and on the real clock temperature 0.8 only.
    The repeats take the demonstration's questions in turn, each with its own seed.
    """

    questions = [question.text for question in bundled.questions() if question.demo]
    round_trips = ROUND_TRIPS_MS[:: len(ROUND_TRIPS_MS) - 1] if settings.quick else ROUND_TRIPS_MS
    temperatures = TEMPERATURES[-1:] if settings.quick and settings.real else TEMPERATURES
    asked: list[tuple[Asked, Row]] = []
    for temperature in temperatures:
        for repeat in range(settings.repeats):
            number, seed = repeat % len(questions), settings.seed + repeat
            each = Asked(questions[number], DOCUMENTS, seed, temperature, TOKENS)
            asked.append((each, {"question": number, "temperature": temperature, "seed": seed}))
    decode_ms = None if settings.real else 1000 * DECODE_S
    return [
        {"decode_ms": decode_ms, **row, "ms_per_token": row["total_ms"] / TOKENS}
        for row in measured(settings, ALL, round_trips, asked, progress, DECODE_S)
    ]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Medians at every round trip, and at the longest what DRAGON and ours save."""
    times = estimates(rows, "ms_per_token", "temperature", "method", "round_trip_ms")
    longest = max(row["round_trip_ms"] for row in rows)
    summary: dict[str, Any] = {"note": NOTE}
    for temperature in sorted({row["temperature"] for row in rows}):
        at = {name: times[temperature, name, longest] for name in distinct(rows, "method")}
        slowest = having(rows, temperature=temperature, round_trip_ms=longest)
        details = {
            name: _between(having(slowest, method=name), longest)
            for name in (TW, PUBLISHED, COUPLED, OURS)
        }
        summary[f"temperature {temperature:g}"] = {
            "ms_per_token": {
                name: {
                    f"{ms} ms": times[temperature, name, ms].to_json()
                    for ms in sorted(distinct(rows, "round_trip_ms"))
                }
                for name in distinct(rows, "method")
            },
            f"at {longest} ms": {
                "DRAGON below DRDG/TW, %": _below(at, PUBLISHED, TW),
                **({"DRAGON below DRDG/SW, %": _below(at, PUBLISHED, SW)} if SW in at else {}),
                "leaderless over DRAGON": round(at[OURS].value / at[PUBLISHED].value, 4),
                "leaderless over DRAGON, between tokens": {
                    kind: round(details[OURS][kind] / details[PUBLISHED][kind], 4)
                    for kind in (MEASURED, PREDICTED)
                    if kind in details[OURS]
                },
                **details,
            },
        }
    return summary


MEASURED, PREDICTED = "mean ms between tokens", "predicted ms between tokens"
NOTE = (
    "Predicted between the first token and the last, with both sides at one pace c and α the share "
    "of the better side's drafts that is accepted (SPEC 1.3): c + (1 - α) rtt under an aggregator "
    "(Eq. 7), c + (1 - α) rtt / 2 without one. Short answers also pay for finding the better side. "
    "Where α is close to 1 both are close to c, and no ratio of one half is possible."
)


def _between(rows: Sequence[Row], rtt_ms: float) -> dict[str, Any]:
    """Of one aggregating method: acceptance, and ms per token between the first and the last."""
    spent_ms = (mean(rows, "total_ms") - mean(rows, "first_ms")) / (TOKENS - 1)
    result = {MEASURED: round(spent_ms, 2)}
    sides = {side: f"accepted_{side}" for side in ("device", "cloud")}
    compared = [row for row in rows if None not in (row[column] for column in sides.values())]
    if not compared:
        return result
    better = sum(max(row[column] for column in sides.values()) for row in compared) / len(compared)
    for side, column in sides.items():
        result[f"mean acceptance, {side}"] = round(mean(compared, column), 4)
    result["mean acceptance, the better side of each answer"] = round(better, 4)
    decode_ms, name = rows[0]["decode_ms"], rows[0]["method"]
    if decode_ms is not None and name != TW:
        waited_ms = rtt_ms / 2 if name == OURS else rtt_ms
        result[PREDICTED] = round(decode_ms + (1 - better) * waited_ms, 2)
    return result


def _below(times: dict[str, Interval], name: str, other: str) -> float:
    return round(100 * (1 - times[name].value / times[other].value), 2)


def plot(rows: list[Row], path: Path) -> None:
    """A column per temperature: everything above, below it the same without DRDG/TW.

    Where there is one round trip only, a measured one, each method has a bar instead.
    """
    round_trips, pace = sorted(distinct(rows, "round_trip_ms")), rows[0]["decode_ms"]
    by_heat = sorted(grouped(rows, "temperature").items())
    few = len(round_trips) == 1
    with charts.picture(
        path,
        rows=1 if few else 2,
        columns=len(by_heat),
        height_inches=3.6 if few else 7.2,
        legend=0 if few else 5,
        sharey="row",
        sharex=True,
    ) as (figure, axes):
        for column, ((heat,), some) in enumerate(by_heat):
            title = f"temperature {heat:g}"
            title += "" if pace is None else f", {pace:g} ms per forward"
            if few:
                _bars(axes[0, column], some, title)
                continue
            found = estimates(some, "ms_per_token", "method", "round_trip_ms")
            charts.lines(axes[0, column], found, LOOKS)
            without = {name: look for name, look in LOOKS.items() if name != TW}
            charts.lines(axes[1, column], found, without)
            axes[0, column].set_title(title)
            axes[1, column].set(title=f"the same without {TW}", xlabel="extra round trip (ms)")
        model = rows[0]["model"]
        if few:
            figure.suptitle(f"{model}, with a measured round trip of {round_trips[0]} ms")
            return
        figure.suptitle(model)
        for axis in axes[:, 0]:
            axis.set_ylabel("ms per token (median, 95 %)")
        axes[0, 0].set_ylim(bottom=0)


def _bars(axis: Any, rows: list[Row], title: str) -> None:
    """A bar per method, the first method on top."""
    found = estimates(rows, "ms_per_token", "method")
    names = distinct(rows, "method")
    for name in names:
        own = {(name, name): found[name,]}
        charts.bars(axis, own, {name: LOOKS[name]}, names, horizontal=True)
    axis.set(title=title, xlabel="ms per token (median, 95 %)")


LOOKS = {
    "CRCG/device": charts.Look(charts.GREY, "o", ":"),
    "CRCG/cloud": charts.Look(charts.BLACK, "s", ":"),
    "DRCG/Text": charts.Look(charts.SKY, "^", "--"),
    "DRCG/KV": charts.Look(charts.PURPLE, "v", "--"),
    SW: charts.Look(charts.BLACK, "P", "--"),
    TW: charts.Look(charts.VERMILION, "D"),
    PUBLISHED: charts.Look(charts.ORANGE, "X"),
    COUPLED: charts.Look(charts.GREEN, "^"),
    OURS: charts.Look(charts.BLUE, "o"),
}
