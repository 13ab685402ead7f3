"""What speculation saves on a slow link: coupled and leaderless over synchronous (DRAGON Fig. 8).

Two real processes over loopback, the latency emulated on the device's end, half of the round trip
in each direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.arena import Outcome
from dragonrt.experiments.bench.report import Series, bench_table, print_report
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.comparison import (
    LEADERLESS,
    SYNCHRONOUS,
    Method,
    costs,
    equal_answers,
)
from dragonrt.experiments.sides import LoadedSide, run, sample_settings
from dragonrt.runtime.endpoints import emulation
from dragonrt.runtime.plan import Plan
from dragonrt.sampling.samplers import Sampler

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
class Setting:
    """One line of the table; `long` answers do not end where the model would end them."""

    round_trip_ms: float
    temperature: float
    long: bool


def default_settings() -> list[Setting]:
    """All round trips with the sample questions, and everything at 300 ms."""
    quick = [Setting(milliseconds, 0.0, False) for milliseconds in (0, 100, 200)]
    slow = [Setting(300, heat, long) for long in (False, True) for heat in (0.0, 0.8)]
    return quick + slow


def bench_latency(
    *,
    output: Console,
    messages: Console,
    settings: Sequence[Setting] | None = None,
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
        cloud_process("--documents", str(bundled.documents("cloud"))) as cloud,
        messages.status("starting two processes") as status,
    ):
        device = LoadedSide.load(sample_settings("device"))
        port = cloud.wait_ready()

        async def ask(setting: Setting, method: Method) -> list[Outcome]:
            one_way = f"{setting.round_trip_ms / 2:g}ms" if setting.round_trip_ms else None
            emulate = emulation("device", None, one_way, None, None, None, 0)
            plan = method.plan(Plan(seed, Sampler(setting.temperature)))
            async with device.connected(port, emulate) as arena:
                if not setting.long:
                    return await arena.ask_each(plan, questions)
                asked = questions[-long_answers:]
                return [await arena.ask_long(plan, each, long_tokens) for each in asked]

        for setting in default_settings() if settings is None else settings:
            status.update(f"answering at {setting.round_trip_ms:g} ms")
            synchronous = run(ask(setting, SYNCHRONOUS), virtual=False)
            leaderless = run(ask(setting, LEADERLESS), virtual=False)
            results.append(_result(setting, synchronous, leaderless))
            table.add_row(*_cells(setting, results[-1]))
    print_report(output, "latency", table, results, seed=seed, note=NOTE)


def _result(
    setting: Setting, synchronous: Sequence[Outcome], leaderless: Sequence[Outcome]
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


def _cells(setting: Setting, result: dict[str, Any]) -> list[str]:
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
