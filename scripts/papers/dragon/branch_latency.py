"""`branches`: milliseconds per token over the round trip and the alternatives drafted (SPEC 1.9).

The real runtime in virtual time: two equally fast sides whose forwards take 50 ms, at temperature
0.8, on scripted models that disagree so far that 0.89, 0.84 or 0.79 of drafts are accepted. A row
more costs nothing here. The text is the same in every row of a seed: it cannot depend on what was
drafted.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import Script
from scripts.papers import charts
from scripts.papers.framework import Clock, ExperimentError, Progress, Settings
from scripts.papers.intervals import Row, averages, distinct, grouped, having, mean
from scripts.papers.parallel import measure_all
from scripts.papers.virtual_arena import Pace, played, scripted

NAME = "branches"
SUMMARY = "ms per token over RTT and the alternatives drafted beside the line (SPEC 1.9; 5 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

FORWARD_S = 0.05
RTTS_MS, RTTS_QUICK_MS = (0, 50, 100, 200, 300, 500), (0, 300)
BRANCHES, BRANCHES_QUICK = ("0", "1", "2", "4", "7"), ("0", "4")
DISAGREEMENTS, DISAGREEMENTS_QUICK = (0.4, 0.6, 0.8), (0.6,)
JITTER = 0.2
TOKENS = 100
SEEDS, SEEDS_QUICK = 12, 3
CONNECTED_S = 2.0
"""The round trip is known before the question, as in a chat."""


@dataclass(frozen=True, slots=True)
class BranchCase:
    """One answer."""

    disagreement: float
    level: Disclosure
    rtt_ms: float
    branches: str
    seed: int


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per answer. Raises ExperimentError where what was drafted changed a text."""
    quick = settings.quick
    seeds = range(SEEDS_QUICK if quick else SEEDS * settings.repeats)
    cases = [
        BranchCase(disagreement, level, rtt_ms, branches, settings.seed + seed)
        for disagreement in (DISAGREEMENTS_QUICK if quick else DISAGREEMENTS)
        for level in (Disclosure.DRAFTS, Disclosure.ANSWER)
        for rtt_ms in (RTTS_QUICK_MS if quick else RTTS_MS)
        for branches in (BRANCHES_QUICK if quick else BRANCHES)
        for seed in seeds
    ]
    rows = measure_all(measure, cases, progress)
    for key, some in grouped(rows, "disagreement", "level", "seed").items():
        if len(distinct(some, "text")) != 1:
            raise ExperimentError(f"what was drafted changed the text of {key}")
    return rows


def measure(case: BranchCase) -> Row:
    """One answer of TOKENS tokens."""
    script = Script(
        case.seed, vocabulary=64, sharpness=3.0, disagreement=case.disagreement, stop=0.0
    )
    pace = Pace(FORWARD_S, FORWARD_S, case.rtt_ms / 1e3, JITTER)
    given = played(
        Question(prompt="q", seed=case.seed, sampler=Sampler(0.8), max_tokens=TOKENS),
        DragonSettings(codec="race", branches=case.branches, disclose=case.level),
        *(scripted(side, script, seconds) for side, seconds in pace.forward_s.items()),
        link=pace.link,
        start_s=CONNECTED_S,
    )
    return {
        "disagreement": case.disagreement,
        "level": case.level.value,
        "rtt_ms": case.rtt_ms,
        "branches": case.branches,
        "seed": case.seed,
        "ms_per_token": 1e3 * (given.between_s or 0.0),
        "accepted": given.accepted("device"),
        "bytes_per_token": given.wire_bytes / len(given.tokens),
        "text": zlib.crc32(np.array(given.tokens, "<u4").tobytes()),
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Means, and each as a multiple of what it is without latency and without branches."""
    summary: dict[str, Any] = {}
    means = averages(rows, "ms_per_token", "disagreement", "level", "rtt_ms", "branches")
    for (disagreement, level), group in grouped(rows, "disagreement", "level").items():
        floor = means[disagreement, level, 0, "0"].value
        accepted = round(mean(group, "accepted"), 3)
        summary[f"level {level}, {accepted} of the device's drafts accepted"] = {
            f"RTT {rtt_ms} ms": {
                branches: {
                    "ms_per_token": means[disagreement, level, rtt_ms, branches].to_json(),
                    "times_without_latency": round(
                        means[disagreement, level, rtt_ms, branches].value / floor, 3
                    ),
                    "bytes_per_token": round(mean(some, "bytes_per_token"), 1),
                }
                for (branches,), some in grouped(having(group, rtt_ms=rtt_ms), "branches").items()
            }
            for rtt_ms in distinct(group, "rtt_ms")
        }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Milliseconds per token over the round trip, a line for every number of branches."""
    looks = charts.looks(distinct(rows, "branches"))
    panels = list(grouped(rows, "disagreement", "level").items())
    levels = distinct(rows, "level")
    columns = len(panels) // len(levels)
    with charts.picture(
        path, rows=len(levels), columns=columns, height_inches=3.2 * len(levels)
    ) as (_, axes):
        for (disagreement, level), some in panels:
            place = distinct(rows, "disagreement").index(disagreement)
            axis = axes[levels.index(level), place]
            for branches, look in looks.items():
                found = averages(having(some, branches=branches), "ms_per_token", "rtt_ms")
                xs = [rtt_ms for (rtt_ms,) in found]
                ys = [each.value for each in found.values()]
                axis.plot(xs, ys, marker="o", color=look.colour, label=branches)
            axis.set(xlabel="round trip (ms)", ylabel="ms per token")
            axis.set_title(f"{level}, {mean(some, 'accepted'):.2f} accepted", fontsize=9)
        axes[0, 0].legend(title="branches", fontsize=8)
