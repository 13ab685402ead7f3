"""What working together costs: the pair's pace over that of its slower side alone, without latency.

Two real processes over loopback, coupled and leaderless. In the same run both sides decode the very
tokens of the pair's answer by themselves, at the same time, so that they share the machine alike.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.arena import Given
from dragonrt.experiments.bench.decode_loop import DecodeLoop, RemoteLoop, remote_loop
from dragonrt.experiments.bench.report import Series, bench_table, print_report
from dragonrt.experiments.comparison import LEADERLESS, costs
from dragonrt.experiments.model_sides import LoadedSide, run, sample_pair
from dragonrt.modes.question import GREEDY, Question

NOTE = (
    "alone: each side decodes the pair's answer by itself, one forward per token, both at the same "
    "time; the slower one counts. pair: time between tokens, without following the better line; "
    "following: with it. Medians of interleaved repeats."
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One repeat: the milliseconds per token of everything, and the answer of the pair."""

    device: float
    cloud: float
    pair: float
    following: float
    answer: Given


def bench_overhead(
    *,
    output: Console,
    messages: Console,
    models: Sequence[str] = ("dragon-small", "dragon-opt"),
    rows: Sequence[int] = (2, 4),
    tokens: int = 96,
    repeats: int = 7,
    seed: int = 1,
) -> None:
    """The pair's milliseconds per token and their ratio to the slower side's decoding alone.

    `rows` are documents per side. Answers go on for `tokens` tokens, whatever they say.
    """
    table = bench_table("model", "rows", "alone", "pair", "ratio", "following", "ratio", "accepted")
    results: list[dict[str, Any]] = []
    question = next(each.text for each in bundled.questions() if each.kind == "both")
    for model in models:
        with ExitStack() as stack:
            status = stack.enter_context(messages.status(f"starting {model}"))
            device, port = stack.enter_context(sample_pair(model))
            beside = stack.enter_context(remote_loop("cloud", model))
            for count in rows:
                status.update(f"answering with {model}, {count} rows a side")
                asked = Question(
                    prompt=question, seed=seed, sampler=GREEDY, max_tokens=tokens, documents=count
                )
                measured = run(_measure(device, port, beside, asked, repeats), virtual=False)
                results.append(_result(model, count, tokens, measured))
                table.add_row(model, str(count), *_cells(results[-1]))
    print_report(output, "overhead", table, results, seed=seed, note=NOTE)


async def _measure(
    device: LoadedSide,
    port: int,
    beside: RemoteLoop,
    question: Question,
    repeats: int,
) -> list[Measured]:
    """Repeats after one that warms everything up."""
    async with device.connected(port) as arena:
        following = LEADERLESS.settings()
        plain = replace(following, follow=False)
        answer = await arena.ask(question, plain)
        own = DecodeLoop(device, question.prompt, question.documents, answer.tokens)
        beside.prepare(question.prompt, question.documents, answer.tokens)
        measured = []
        for _ in range(repeats):
            answer = await arena.ask(question, plain)
            followed = await arena.ask(question, following)
            beside.start()
            alone = own.run()
            measured.append(Measured(alone, beside.finish(), _ms(answer), _ms(followed), answer))
    return measured


def _ms(answer: Given) -> float:
    return 1000 * (answer.between_s or 0.0)


def _result(model: str, rows: int, tokens: int, measured: Sequence[Measured]) -> dict[str, Any]:
    device = Series(tuple(each.device for each in measured))
    cloud = Series(tuple(each.cloud for each in measured))
    pair = Series(tuple(each.pair for each in measured))
    following = Series(tuple(each.following for each in measured))
    alone_ms = max(device.median, cloud.median)
    spent = costs([each.answer for each in measured])
    return {
        "model": model,
        "rows": rows,
        "tokens": tokens,
        "device_alone_ms": device.to_json(),
        "cloud_alone_ms": cloud.to_json(),
        "pair_ms": pair.to_json(),
        "following_ms": following.to_json(),
        "ratio": round(pair.median / alone_ms, 4),
        "ratio_following": round(following.median / alone_ms, 4),
        "device_forwards_per_token": round(_forwards_per_token(measured), 4),
        "accepted_device": spent.accepted_device,
        "accepted_cloud": spent.accepted_cloud,
    }


def _forwards_per_token(measured: Sequence[Measured]) -> float:
    """The device's forwards, preempted ones included: above 1 is work that rejections wasted."""
    counts = [each.answer.counts for each in measured]
    forwards = sum(each.forwards + each.preempted for each in counts)
    return forwards / sum(each.tokens for each in counts)


def _cells(result: dict[str, Any]) -> list[str]:
    alone = max(result["device_alone_ms"]["median"], result["cloud_alone_ms"]["median"])
    return [
        f"{alone:.2f} ms",
        f"{result['pair_ms']['median']:.2f} ms",
        f"{result['ratio']:.3f}",
        f"{result['following_ms']['median']:.2f} ms",
        f"{result['ratio_following']:.3f}",
        f"{result['accepted_device']:.2f}/{result['accepted_cloud']:.2f}",
    ]
