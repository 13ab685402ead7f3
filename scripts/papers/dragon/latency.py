"""`latency`: milliseconds per token over the round trip, for all ways of answering (DRAGON Fig. 6).

The extra round trip lies half in each direction, jitter a fifth of it, 50 Mbit/s. On the real clock
two more processes on loopback are the clouds; on the virtual clock the same models' distributions
meet a decoding delay of 50 ms on both sides. Times are from the question to the last token:
retrieval and prefill are in them. With a cloud that already runs nothing is emulated.
"""

from itertools import product
from pathlib import Path
from typing import Any

from dragonrt import bundled
from scripts.lab.intervals import Row, distinct, estimates, grouped, table
from scripts.papers import charts
from scripts.papers.dragon.baselines.reading import Asked
from scripts.papers.framework import Clock, Progress, Settings
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
    """Return a row per answer: method, round trip, temperature, times, bytes and acceptance."""
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
        {
            "decode_ms": decode_ms,
            **row,
            "ms_per_token": row["total_ms"] / TOKENS,
            "between_ms": (row["total_ms"] - row["first_ms"]) / (TOKENS - 1),
        }
        for row in measured(settings, ALL, round_trips, asked, progress, DECODE_S)
    ]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return medians at every round trip, and what methods take times DRAGON's time."""
    columns = ("between_ms", "accepted_device", "accepted_cloud")
    keys = ("temperature", "round_trip_ms")
    found = table(rows, *keys, "method", mean=columns, median=["ms_per_token"])
    for methods in (each for heats in found.values() for each in heats.values()):
        for each in methods.values():
            ratio = each["ms_per_token"]["median"] / methods[DRAGON]["ms_per_token"]["median"]
            each["times DRAGON's"] = round(ratio, 4)
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw a column per temperature: everything above, below it the same without DRDG/TW."""
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
