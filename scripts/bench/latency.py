"""What speculation saves on a slow link: coupled and leaderless over synchronous (DRAGON Fig. 8).

Two real processes over loopback, the latency emulated on the device's end, half of the round trip
in each direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.comparison import (
    LEADERLESS,
    SYNCHRONOUS,
    Method,
    costs,
    equal_answers,
)
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from scripts.bench.report import Series, bench_table, print_report
from scripts.papers.arena import Given, emulated
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import sample_pair

HEADINGS = (
    "round\ntrip",
    "T",
    "answers",
    "sync",
    "leaderless",
    "ratio",
    "between",
    "accepted",
    "same",
)
NOTE = (
    "T: temperature. ms per token: from the question to the last token, over the tokens, of each "
    "answer; between: from the first token to the last, over the tokens after the first. Medians "
    "over the answers. Long answers go on for a fixed number of tokens. A round trip of 0 is the "
    "loopback's own."
)


@dataclass(frozen=True, slots=True)
class LatencySetting:
    """One line of the table; `long` answers do not end where the model would end them."""

    round_trip_ms: float
    temperature: float
    long: bool


def default_settings() -> list[LatencySetting]:
    """All round trips with the sample questions, and everything at 300 ms."""
    quick = [LatencySetting(milliseconds, 0.0, False) for milliseconds in (0, 100, 200)]
    slow = [LatencySetting(300, heat, long) for long in (False, True) for heat in (0.0, 0.8)]
    return quick + slow


def bench_latency(
    *,
    output: Console,
    messages: Console,
    settings: Sequence[LatencySetting] | None = None,
    long_tokens: int = 48,
    long_answers: int = 2,
    seed: int = 1,
) -> None:
    """Both ways' milliseconds per token on the sample questions, and their ratio.

    The default settings take about three minutes, most of it the synchronous runs at 300 ms.
    """
    table = bench_table(*HEADINGS)
    results: list[dict[str, Any]] = []
    questions = [each.text for each in bundled.questions() if each.demo]
    with (
        messages.status("starting two processes") as status,
        sample_pair() as (device, port),
    ):

        async def ask(setting: LatencySetting, method: Method) -> list[Given]:
            link = LinkProfile(latency_s=setting.round_trip_ms / 2000)
            question, settings = (
                Question(seed=seed, sampler=Sampler(setting.temperature)),
                method.settings(),
            )
            async with device.connected(port, emulated(link)) as arena:
                if not setting.long:
                    return await arena.ask_each(questions, question, settings)
                long = [
                    replace(question, prompt=prompt, max_tokens=long_tokens)
                    for prompt in questions[-long_answers:]
                ]
                return [await arena.ask(each, settings) for each in long]

        for setting in default_settings() if settings is None else settings:
            status.update(f"answering at {setting.round_trip_ms:g} ms")
            synchronous = run(ask(setting, SYNCHRONOUS), virtual=False)
            leaderless = run(ask(setting, LEADERLESS), virtual=False)
            results.append(_result(setting, synchronous, leaderless))
            table.add_row(*_cells(setting, results[-1]))
    print_report(output, "latency", table, results, seed=seed, note=NOTE)


def _result(
    setting: LatencySetting, synchronous: Sequence[Given], leaderless: Sequence[Given]
) -> dict[str, Any]:
    series = {}
    for name, answers in (("synchronous", synchronous), ("leaderless", leaderless)):
        each = [costs([answer]) for answer in answers]
        series[f"{name}_ms"] = Series(tuple(one.ms_per_token for one in each))
        series[f"{name}_between_ms"] = Series(
            tuple(one.ms_between_tokens for one in each if one.ms_between_tokens is not None)
        )
    spent = costs(leaderless)
    fastest, slowest = series["leaderless_ms"], series["synchronous_ms"]
    between = series["leaderless_between_ms"].median / series["synchronous_between_ms"].median
    return {
        "round_trip_ms": setting.round_trip_ms,
        "temperature": setting.temperature,
        "long": setting.long,
        **{name: one.to_json() for name, one in series.items()},
        "ratio": round(fastest.median / slowest.median, 4),
        "ratio_between": round(between, 4),
        "accepted_device": spent.accepted_device,
        "accepted_cloud": spent.accepted_cloud,
        "answers": len(leaderless),
        "same_texts": equal_answers(leaderless, synchronous),
    }


def _cells(setting: LatencySetting, result: dict[str, Any]) -> list[str]:
    kind = "long" if setting.long else "sample"
    return [
        f"{setting.round_trip_ms:g} ms",
        f"{setting.temperature:g}",
        f"{result['answers']} {kind}",
        f"{result['synchronous_ms']['median']:.1f} ms",
        f"{result['leaderless_ms']['median']:.1f} ms",
        f"{result['ratio']:.3f}",
        f"{result['ratio_between']:.3f}",
        f"{result['accepted_device']:.2f}/{result['accepted_cloud']:.2f}",
        f"{result['same_texts']} of {result['answers']}",
    ]
