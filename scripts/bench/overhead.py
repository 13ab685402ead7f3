"""What working together costs: the pair's pace over that of its slower side alone, without latency.

Two real processes over loopback, coupled and leaderless. In the same run both sides decode the very
tokens of the pair's answer by themselves, at the same time, so that they share the machine alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.comparison import LEADERLESS, costs
from dragonrt.modes.question import GREEDY, Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import ClientSession
from dragonrt.traces.events import Record, TokenDecided
from scripts.bench.cpu_parts import PARTS, PartClock, measured_parts
from scripts.bench.decode_loop import DecodeLoop, RemoteLoop, remote_loop
from scripts.bench.report import Series, bench_table, print_report
from scripts.papers.arena import Arena, Given
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, sample_pair

NOTE = (
    "alone: each side decodes the pair's answer by itself, one forward per token, both at the same "
    "time; the slower one counts. pair: time between tokens, without following the better line; "
    "following: with it. Medians of interleaved repeats. The second table has the device's "
    "processor time per token after the first: forwards, heads, what hands work over (glue), "
    "messages to bytes and back (wire), the rest of the event loop; outside is all but the forward."
)
WAYS = ("alone", "pair", "following")


@dataclass(frozen=True, slots=True)
class Measured:
    """One repeat: the milliseconds per token of everything, and the answer of the pair.

    `cpu_us` has the device's processor time of each of the WAYS by part.
    """

    device: float
    cloud: float
    pair: float
    following: float
    answer: Given
    cpu_us: Mapping[str, Mapping[str, float]]


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
    cpu_table = bench_table("model", "rows", "CPU µs", *PARTS, "outside", "sum", "ratio")
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
                for way, cells in _cpu_cells(results[-1]):
                    cpu_table.add_row(model, str(count), way, *cells)
    output.print(table, end="\n\n")
    print_report(output, "overhead", cpu_table, results, seed=seed, note=NOTE)


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
        with measured_parts() as clock:
            for _ in range(repeats):
                answer, plain_us = await _ask(arena, question, plain, clock)
                followed, following_us = await _ask(arena, question, following, clock)
                beside.start()
                before = clock.now()
                alone = own.run()
                alone_us = _per_token(before, clock.now(), len(answer.tokens))
                # nothing else runs: what is not the forward stands around it
                alone_us |= {"glue": alone_us["glue"] + alone_us["loop"], "loop": 0.0}
                cpu_us = dict(zip(WAYS, (alone_us, plain_us, following_us), strict=True))
                times = (alone, beside.finish(), _ms(answer), _ms(followed))
                measured.append(Measured(*times, answer, cpu_us))
    return measured


async def _ask(
    arena: Arena, question: Question, settings: DragonSettings, clock: PartClock
) -> tuple[Given, dict[str, float]]:
    """An answer, and the processor time per token of this process after the first one."""
    stands: list[dict[str, float]] = []

    def note(record: Record) -> None:
        if isinstance(record.event, TokenDecided):
            stands.append(clock.now())

    resources = arena.resources(settings)
    asking = ClientSession(arena.side, arena.connectors, question, settings, resources, note)
    answer = Given(await asking.ask())
    return answer, _per_token(stands[0], stands[-1], len(stands) - 1)


def _per_token(
    before: Mapping[str, float], after: Mapping[str, float], tokens: int
) -> dict[str, float]:
    return {part: 1e6 * (after[part] - before[part]) / tokens for part in PARTS}


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
        "cpu_us": {way: _parts([each.cpu_us[way] for each in measured]) for way in WAYS},
    }


def _parts(repeats: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The medians of each part, and of all parts together with every sample."""
    parts = {part: round(median(each[part] for each in repeats), 1) for part in PARTS}
    outside = (sum(each.values()) - each["forward"] for each in repeats)
    together = Series(tuple(sum(each.values()) for each in repeats))
    return parts | {"outside": round(median(outside), 1), "sum": together.to_json()}


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


def _cpu_cells(result: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Each way's parts, and its sum over that of decoding alone."""
    alone = result["cpu_us"]["alone"]["sum"]["median"]
    for way, parts in result["cpu_us"].items():
        each = [f"{parts[part]:.0f}" for part in (*PARTS, "outside")]
        together = parts["sum"]["median"]
        yield way, [*each, f"{together:.0f}", f"{together / alone:.2f}"]
