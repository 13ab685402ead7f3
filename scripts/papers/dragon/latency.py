"""`latency`: milliseconds per token over the round trip, for all ways of answering (DRAGON Fig. 6).

Twenty tokens, two documents a side. The extra round trip lies half in each direction, jitter a
fifth of it, 50 Mbit/s. On the real clock two more processes on loopback are the clouds; on the
virtual clock the same models' real distributions meet a decoding delay of 50 ms on both sides.
Times are from the question to the last token, over the tokens: retrieval and prefill are in them.
DRDG/SW shows no token before the last one is there.

With a cloud that already runs elsewhere nothing is emulated: one round trip, the measured one.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt import bundled
from dragonrt.side import SIDES
from scripts.papers import charts
from scripts.papers.dragon.baselines.reading import Asked
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, distinct, estimates, grouped, having, mean, tree
from scripts.papers.lineup import ALL, COUPLED, DRAGON, DRDG_TW, OURS, measured

NAME = "latency"
SUMMARY = "ms per token of all baselines and ours over the round trip (DRAGON Fig. 6; 20 minutes)"
CLOCKS: tuple[Clock, ...] = ("real", "virtual")

TOKENS, DOCUMENTS = 20, 2
DECODE_S = 0.05
"""Of one draft on either side, on the virtual clock."""
ROUND_TRIPS_MS = (0, 100, 200, 300)
TEMPERATURES = (0.0, 0.8)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per answer: method, round trip, temperature, times, bytes and acceptance.

    A quick run has the first and the last round trip, and on the real clock temperature 0.8 only.
    The repeats take the demonstration's questions in turn, each with its own seed.
    """
    questions = [question.text for question in bundled.questions() if question.demo]
    round_trips = settings.size(ROUND_TRIPS_MS, ROUND_TRIPS_MS[:: len(ROUND_TRIPS_MS) - 1])
    temperatures = TEMPERATURES[-1:] if settings.quick and settings.real else TEMPERATURES
    asked: list[tuple[Asked, Row]] = []
    for temperature, repeat in product(temperatures, range(settings.repeats)):
        number, seed = repeat % len(questions), settings.seed + repeat
        each = Asked(questions[number], DOCUMENTS, seed, temperature, TOKENS)
        asked.append((each, {"question": number, "temperature": temperature, "seed": seed}))
    decode_ms = None if settings.real else 1000 * DECODE_S
    return [
        {"decode_ms": decode_ms, **row, "ms_per_token": row["total_ms"] / TOKENS}
        for row in measured(settings, ALL, round_trips, asked, progress, DECODE_S)
    ]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return medians at every round trip, and at the longest what DRAGON and ours save."""
    longest = max(row["round_trip_ms"] for row in rows)
    summary: dict[str, Any] = {"note": NOTE}
    for (temperature,), some in sorted(grouped(rows, "temperature").items()):
        times = estimates(some, "ms_per_token", "method", "round_trip_ms")
        at = {name: each.value for (name, ms), each in times.items() if ms == longest}
        details = {
            name: _between(having(some, method=name, round_trip_ms=longest), longest)
            for name in (DRDG_TW, DRAGON, COUPLED, OURS)
        }
        summary[f"temperature {temperature:g}"] = {
            "ms_per_token": tree(times, "{}", "{} ms"),
            f"at {longest} ms": {
                f"DRAGON below {name}, %": round(100 * (1 - at[DRAGON] / at[name]), 2)
                for name in (DRDG_TW, "DRDG/SW")
                if name in at
            }
            | {
                "leaderless over DRAGON": round(at[OURS] / at[DRAGON], 4),
                "leaderless over DRAGON, between tokens": {
                    kind: round(details[OURS][kind] / details[DRAGON][kind], 4)
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
    """Return an aggregating method's acceptance, and ms per token between first and last."""
    spent_ms = (mean(rows, "total_ms") - mean(rows, "first_ms")) / (TOKENS - 1)
    result = {MEASURED: round(spent_ms, 2)}
    columns = [f"accepted_{side}" for side in SIDES]
    compared = [row for row in rows if None not in (row[column] for column in columns)]
    if not compared:
        return result
    better = sum(max(row[column] for column in columns) for row in compared) / len(compared)
    for side, column in zip(SIDES, columns, strict=True):
        result[f"mean acceptance, {side}"] = round(mean(compared, column), 4)
    result["mean acceptance, the better side of each answer"] = round(better, 4)
    decode_ms, name = rows[0]["decode_ms"], rows[0]["method"]
    if decode_ms is not None and name != DRDG_TW:
        waited_ms = rtt_ms / 2 if name == OURS else rtt_ms
        result[PREDICTED] = round(decode_ms + (1 - better) * waited_ms, 2)
    return result


def plot(rows: list[Row], path: Path) -> None:
    """Draw a column per temperature: everything above, below it the same without DRDG/TW.

    With one round trip only, a measured one, each method has a bar instead.
    """
    round_trips, pace = sorted(distinct(rows, "round_trip_ms")), rows[0]["decode_ms"]
    by_heat, few = sorted(grouped(rows, "temperature").items()), len(round_trips) == 1
    size: dict[str, Any] = {
        "rows": 1 if few else 2,
        "height_inches": 3.6 if few else 7.2,
        "legend": 5 * (not few),
    }
    with charts.picture(path, columns=len(by_heat), **size, sharey="row", sharex=True) as (
        figure,
        axes,
    ):
        for column, ((heat,), some) in enumerate(by_heat):
            upper, lower = axes[0, column], axes[-1, column]
            upper.set_title(
                f"temperature {heat:g}" + ("" if pace is None else f", {pace:g} ms per forward")
            )
            found = estimates(some, "ms_per_token", "method", "round_trip_ms")
            if few:
                names = distinct(some, "method")
                for name in names:
                    own = {(name, name): found[name, round_trips[0]]}
                    charts.bars(upper, own, {name: LOOKS[name]}, names, horizontal=True)
                upper.set_xlabel("ms per token (median, 95 %)")
                continue
            charts.lines(upper, found, LOOKS)
            charts.lines(lower, found, {name: LOOKS[name] for name in LOOKS if name != DRDG_TW})
            lower.set(title=f"the same without {DRDG_TW}", xlabel="extra round trip (ms)")
        model = rows[0]["model"]
        if few:
            figure.suptitle(f"{model}, with a measured round trip of {round_trips[0]} ms")
            return
        figure.suptitle(model)
        for axis in axes[:, 0]:
            axis.set_ylabel("ms per token (median, 95 %)")
        axes[0, 0].set_ylim(bottom=0)


LOOKS = {
    "CRCG/device": charts.Look(charts.GREY, "o", ":"),
    "CRCG/cloud": charts.Look(charts.BLACK, "s", ":"),
    "DRCG/Text": charts.Look(charts.SKY, "^", "--"),
    "DRCG/KV": charts.Look(charts.PURPLE, "v", "--"),
    "DRDG/SW": charts.Look(charts.BLACK, "P", "--"),
    DRDG_TW: charts.Look(charts.VERMILION, "D"),
    DRAGON: charts.Look(charts.ORANGE, "X"),
    COUPLED: charts.Look(charts.GREEN, "^"),
    OURS: charts.Look(charts.BLUE, "o"),
}
