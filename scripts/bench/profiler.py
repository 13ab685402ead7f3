"""How well DRAGON's scheduler knows what it decides by: its estimates over the truth (DRAGON §5.2).

Two sides of one real model with the sample documents, in one process and in real time, over an
emulated link. The truth is what their own traces say that drafts took, and the link's round trip.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.control.profiler import DecodeProfile
from dragonrt.control.scheduler import Estimate, expected_latency
from dragonrt.experiments.comparison import COUPLED_GREEDY
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import GREEDY, Question
from dragonrt.node.host_profile import measure
from dragonrt.side import Side
from dragonrt.traces.events import Drafted, LatencyEstimated, Record
from scripts.bench.report import bench_table, print_report
from scripts.papers.model_sides import document_side, engine, run
from scripts.papers.sample_sides import LoadedSide, sample_settings
from scripts.papers.virtual_arena import linked

FROM_STEP = 3
"""Estimates are judged from here on: before, they are of one or two drafts."""
TOKENS = 40
ROUND_TRIP_S = 0.1
QUESTIONS = 6
SIDES: tuple[Side, ...] = ("device", "cloud")
CASES: Mapping[str, tuple[Side, ...]] = {
    "no profile": (),
    "the device's only": ("device",),
    "the cloud's only": ("cloud",),
    "both profiles": SIDES,
}
HEADINGS = ("profiles", "device", "cloud", "round trip", "first step", "wrong", "lost")
NOTE = (
    f"Estimate over truth, from step {FROM_STEP} on: of a draft on either side, over what its "
    "forwards took on average in that answer, and of the round trip; medians over the answers. "
    "First step: the one of the two sides' ratios at step 1 that is farther from 1. Wrong: choices "
    "of the aggregator from step 1 on that the true delays and the same acceptance would not make; "
    "lost: what they cost of the expected time of all tokens."
)


@dataclass(frozen=True, slots=True)
class Foresight:
    """What was expected in one answer, over what came true.

    `decode` are ratios from FROM_STEP on, `first` those of step 1; `wrong` of the `choices` would
    have been others with the true delays, and lost that part of the expected time.
    """

    decode: dict[Side, float]
    first: dict[Side, float]
    rtt: float
    wrong: int
    choices: int
    lost: float


def foresight(device: Iterable[Record], cloud: Iterable[Record], rtt_s: float) -> Foresight | None:
    """Of the one answer in both sides' records, over a link of that round trip; None if short."""
    records = {"device": list(device), "cloud": list(cloud)}
    told = [each.event for side in SIDES for each in records[side]]
    estimates = [event for event in told if isinstance(event, LatencyEstimated)]
    later = [each for each in estimates if each.step >= FROM_STEP]
    took: dict[Side, list[float]] = {}
    for side in SIDES:
        drafts = (each.event for each in records[side] if isinstance(each.event, Drafted))
        took[side] = [each.seconds for each in drafts if each.seconds]
    if not later or not all(took.values()):
        return None
    true_s = {side: mean(took[side]) for side in SIDES}
    expected = {side: mean(_decode_s(each)[side] for each in later) for side in SIDES}
    first = _decode_s(min(estimates, key=lambda each: each.step))
    regrets = [_regret(each, true_s, rtt_s) for each in estimates]
    return Foresight(
        {side: expected[side] / true_s[side] for side in SIDES},
        {side: first[side] / true_s[side] for side in SIDES},
        mean(each.rtt for each in later) / rtt_s,
        sum(regret_s > 0 for regret_s, _ in regrets),
        len(estimates),
        sum(regret_s for regret_s, _ in regrets) / sum(best_s for _, best_s in regrets),
    )


def _decode_s(estimate: LatencyEstimated) -> dict[Side, float]:
    return {"device": estimate.device_s, "cloud": estimate.cloud_s}


def _regret(
    estimate: LatencyEstimated, true_s: dict[Side, float], rtt_s: float
) -> tuple[float, float]:
    """Seconds per token that the choice costs over the better one, which takes so many."""
    acceptance: dict[Side, float] = {"device": estimate.device, "cloud": estimate.cloud}
    truth = Estimate(true_s, acceptance, rtt_s)
    z = {side: expected_latency(side, truth) for side in SIDES}
    chosen: Side = "cloud" if estimate.difference > 0 else "device"
    best_s = min(z.values())
    return z[chosen] - best_s, best_s


def bench_profiler(
    *, output: Console, messages: Console, questions: int = QUESTIONS, tokens: int = TOKENS
) -> None:
    """Every case of CASES on so many sample questions, of so many tokens each; half a minute."""
    table = bench_table(*HEADINGS)
    results: list[dict[str, Any]] = []
    with messages.status("profiling the model") as status:
        device = LoadedSide.load(sample_settings("device"))
        cloud = LoadedSide.opened(sample_settings("cloud"), device.model)
        profile = measure(device.model, runs=1)
        prompts = [each.text for each in bundled.questions()][:questions]
        for name, profiled in CASES.items():
            status.update(f"answering with {name}")
            profiles = {side: profile if side in profiled else None for side in SIDES}
            found = [
                each
                for prompt in prompts
                if (each := run(_answer(device, cloud, profiles, prompt, tokens), virtual=False))
            ]
            results.append(_result(name, found))
            table.add_row(*_cells(results[-1]))
    print_report(output, "profiler", table, results, seed=0, note=NOTE)


async def _answer(
    device: LoadedSide,
    cloud: LoadedSide,
    profiles: Mapping[Side, DecodeProfile | None],
    prompt: str,
    tokens: int,
) -> Foresight | None:
    kept: dict[Side, list[Record]] = {"device": [], "cloud": []}
    question = Question(prompt=prompt, sampler=GREEDY, max_tokens=tokens)
    async with engine() as one, engine() as two:
        sides = [
            replace(
                document_side(loaded, 0.0, (kept[side].append,)),
                engine=running,
                profile=profiles[side],
            )
            for loaded, side, running in zip((device, cloud), SIDES, (one, two), strict=True)
        ]
        async with linked(sides[0], sides[1:], LinkProfile(latency_s=ROUND_TRIP_S / 2)) as arena:
            await arena.ask(question, replace(COUPLED_GREEDY.settings(), follow=False))
    return foresight(kept["device"], kept["cloud"], ROUND_TRIP_S)


def _result(case: str, found: Sequence[Foresight]) -> dict[str, Any]:
    first = [max(each.first.values(), key=lambda ratio: abs(ratio - 1)) for each in found]
    return {
        "profiles": case,
        **{side: round(median(each.decode[side] for each in found), 4) for side in SIDES},
        "rtt": round(median(each.rtt for each in found), 4),
        "first": round(median(first), 4),
        "each": [{side: round(one.decode[side], 4) for side in SIDES} for one in found],
        "wrong": sum(each.wrong for each in found),
        "choices": sum(each.choices for each in found),
        "lost": round(mean(each.lost for each in found), 5),
    }


def _cells(result: dict[str, Any]) -> list[str]:
    ratios = [f"{result[name]:.2f}" for name in ("device", "cloud", "rtt", "first")]
    wrong = f"{result['wrong']} of {result['choices']}"
    return [result["profiles"], *ratios, wrong, f"{result['lost']:.2%}"]
