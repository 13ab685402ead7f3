"""`latency`: milliseconds per token over the round trip, for all ways of answering (DRAGON Fig. 6).

Twenty tokens, two documents a side. The extra round trip lies half in each direction, jitter a
fifth of it, 50 Mbit/s. On the real clock two more processes on loopback are the clouds; on the
virtual clock the same models' real distributions meet a decoding delay of 50 ms on both sides.
Times are from the question to the last token, over the tokens: retrieval and prefill are in them.
DRDG/SW is cheap by that measure, but it shows no token before the last one is there.

With a cloud that already runs elsewhere nothing is emulated: one round trip, the measured one.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonrt.experiments import style
from dragonrt.experiments.framework import Clock, Progress, Settings
from dragonrt.experiments.statistics import Estimate, Row, estimates

if TYPE_CHECKING:
    from dragonrt.experiments.lineup import Lineup

NAME = "latency"
SUMMARY = "ms per token of all baselines and ours over the round trip (DRAGON Fig. 6; 10 minutes)"
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
    from dragonrt import bundled
    from dragonrt.experiments.baselines.device import NOTICE
    from dragonrt.experiments.lineup import ALL, PacedModels, real_processes
    from dragonrt.experiments.network import asked_of, measure_over_network
    from dragonrt.runtime import main as programs
    from dragonrt.simulation import loop

    questions = [question.text for question in bundled.questions() if question.demo]
    round_trips = ROUND_TRIPS_MS[:: len(ROUND_TRIPS_MS) - 1] if settings.quick else ROUND_TRIPS_MS
    temperatures = TEMPERATURES[-1:] if settings.quick and settings.real else TEMPERATURES
    names, links = (ALL, len(round_trips)) if settings.cloud is None else (asked_of(ALL), 1)
    total = links * len(temperatures) * settings.repeats * len(names)
    rows: list[Row] = []

    async def measure(lineup: "Lineup", milliseconds: int) -> None:
        for temperature in temperatures:
            for repeat in range(settings.repeats):
                for name in names:
                    number = repeat % len(questions)
                    seed = settings.seed + repeat
                    row = await _ask(lineup, name, questions[number], temperature, seed)
                    rows.append({"round_trip_ms": milliseconds, "question": number} | row)
                    progress(len(rows), total)

    if settings.cloud is not None:
        measured_ms = measure_over_network(settings.cloud, lambda lineup: measure(lineup, 0))
        return [{"decode_ms": None} | row | {"round_trip_ms": measured_ms} for row in rows]
    print(NOTICE, file=sys.stderr)
    if settings.real:
        with real_processes() as processes:

            async def real(milliseconds: int) -> None:
                async with processes.lineup(milliseconds / 1000, settings.seed) as lineup:
                    await measure(lineup, milliseconds)

            for milliseconds in round_trips:
                programs.run(real(milliseconds))
    else:
        paced = PacedModels(DECODE_S, questions)

        async def virtual(milliseconds: int) -> None:
            async with paced.lineup(milliseconds / 1000, settings.seed) as lineup:
                await measure(lineup, milliseconds)

        for milliseconds in round_trips:
            loop.run(virtual(milliseconds))
    return [{"decode_ms": None if settings.real else 1000 * DECODE_S} | row for row in rows]


async def _ask(
    lineup: "Lineup", name: str, question: str, temperature: float, seed: int
) -> dict[str, Any]:
    from dragonrt.experiments.baselines.device import Asked

    asked = Asked(question, DOCUMENTS, seed, temperature, TOKENS)
    sample = await lineup.ask(name, asked)
    return {
        "method": name,
        "temperature": temperature,
        "seed": seed,
        "ms_per_token": sample.total_ms / TOKENS,
        **asdict(sample),
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Medians at every round trip, and at the longest what DRAGON and ours save."""
    times = estimates(rows, "ms_per_token", "temperature", "method", "round_trip_ms")
    longest = max(row["round_trip_ms"] for row in rows)
    summary: dict[str, Any] = {"note": NOTE}
    for temperature in sorted({row["temperature"] for row in rows}):
        at = {name: times[temperature, name, longest] for name in _methods(rows)}
        slowest = [
            row
            for row in rows
            if row["temperature"] == temperature and row["round_trip_ms"] == longest
        ]
        details = {
            name: _between([row for row in slowest if row["method"] == name], longest)
            for name in (TW, PUBLISHED, COUPLED, OURS)
        }
        summary[f"temperature {temperature:g}"] = {
            "ms_per_token": {
                name: {
                    f"{ms} ms": times[temperature, name, ms].to_json() for ms in _round_trips(rows)
                }
                for name in _methods(rows)
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
    spent = [(row["total_ms"] - row["first_ms"]) / (TOKENS - 1) for row in rows]
    accepted = [(row["accepted_device"], row["accepted_cloud"]) for row in rows]
    compared = [(one, other) for one, other in accepted if one is not None and other is not None]
    result = {MEASURED: round(_mean(spent), 2)}
    if not compared:
        return result
    better = _mean([max(pair) for pair in compared])
    result |= {
        "mean acceptance, device": round(_mean([one for one, _ in compared]), 4),
        "mean acceptance, cloud": round(_mean([other for _, other in compared]), 4),
        "mean acceptance, the better side of each answer": round(better, 4),
    }
    decode_ms, name = rows[0]["decode_ms"], rows[0]["method"]
    if decode_ms is not None and name != TW:
        waited_ms = rtt_ms / 2 if name == OURS else rtt_ms
        result[PREDICTED] = round(decode_ms + (1 - better) * waited_ms, 2)
    return result


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _below(times: dict[str, Estimate], name: str, other: str) -> float:
    return round(100 * (1 - times[name].value / times[other].value), 2)


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _round_trips(rows: Sequence[Row]) -> list[int]:
    return sorted({row["round_trip_ms"] for row in rows})


def plot(rows: list[Row], path: Path) -> None:
    """A column per temperature: everything above, below it the same without DRDG/TW.

    Where there is one round trip only, a measured one, each method has a bar instead.
    """
    times = estimates(rows, "ms_per_token", "temperature", "method", "round_trip_ms")
    if len(_round_trips(rows)) == 1:
        _bars(rows, times, path)
        return
    temperatures = sorted({row["temperature"] for row in rows})
    with style.picture(
        path, rows=2, columns=len(temperatures), height_inches=7.2, squeeze=False, sharey="row"
    ) as (figure, axes):
        for column, temperature in enumerate(temperatures):
            for axis, left_out in zip(axes[:, column], ((), (TW,)), strict=True):
                for name in _methods(rows):
                    if name not in left_out:
                        at = [times[temperature, name, ms] for ms in _round_trips(rows)]
                        _curve(axis, name, _round_trips(rows), at)
            axes[0, column].set_title(f"temperature {temperature:g}{_pace(rows)}")
            axes[1, column].set_title(f"the same without {TW}")
            axes[1, column].set_xlabel("extra round trip (ms)")
        for axis in axes[:, 0]:
            axis.set_ylabel("ms per token (median, 95 %)")
        axes[0, 0].set_ylim(bottom=0)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)


def _bars(rows: list[Row], times: dict[tuple[Any, ...], Estimate], path: Path) -> None:
    """A column per temperature, a bar per method, the first method on top."""
    temperatures = sorted({row["temperature"] for row in rows})
    names, (ms,) = _methods(rows), _round_trips(rows)
    with style.picture(
        path, columns=len(temperatures), height_inches=3.6, squeeze=False, sharex=True, sharey=True
    ) as (figure, axes):
        for axis, temperature in zip(axes[0], temperatures, strict=True):
            at = [times[temperature, name, ms] for name in names]
            values = [each.value for each in at]
            below = [each.value - each.low for each in at]
            above = [each.high - each.value for each in at]
            axis.barh(
                names,
                values,
                xerr=[below, above],
                color=[LOOKS[name][0] for name in names],
                capsize=3,
            )
            axis.set_title(f"temperature {temperature:g}{_pace(rows)}")
            axis.set_xlabel("ms per token (median, 95 %)")
        axes[0, 0].invert_yaxis()
        figure.suptitle(f"over a network with a measured round trip of {ms} ms", fontsize=10)


def _curve(axis: Any, name: str, round_trips: Sequence[int], at: Sequence[Estimate]) -> None:
    colour, line, marker = LOOKS[name]
    axis.errorbar(
        round_trips,
        [each.value for each in at],
        yerr=[[each.value - each.low for each in at], [each.high - each.value for each in at]],
        color=colour,
        linestyle=line,
        marker=marker,
        capsize=2,
        elinewidth=0.8,
        label=name,
    )


LOOKS = {
    "CRCG/device": (style.GREY, ":", "o"),
    "CRCG/cloud": (style.BLACK, ":", "s"),
    "DRCG/Text": (style.SKY, "--", "^"),
    "DRCG/KV": (style.PURPLE, "--", "v"),
    SW: (style.BLACK, "--", "P"),
    TW: (style.VERMILION, "-", "D"),
    PUBLISHED: (style.ORANGE, "-", "X"),
    COUPLED: (style.GREEN, "-", "^"),
    OURS: (style.BLUE, "-", "o"),
}


def _pace(rows: Sequence[Row]) -> str:
    decode_ms = rows[0]["decode_ms"]
    return "" if decode_ms is None else f", {decode_ms:g} ms per forward"
