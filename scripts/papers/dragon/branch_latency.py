"""`branches`: milliseconds per token over the round trip and the alternatives drafted (SPEC 1.9).

The real runtime in virtual time: two equally fast sides whose forwards take 50 ms, at temperature
0.8, on scripted models that disagree so far that 0.89, 0.84 or 0.79 of drafts are accepted. A row
more costs nothing here. The text is the same in every row of a seed: it cannot depend on what was
drafted.
"""

import zlib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import Script
from scripts.papers import charts
from scripts.papers.framework import Clock, ExperimentError, Progress, Settings, measure_all
from scripts.papers.intervals import Row, averages, distinct, grouped, mean
from scripts.papers.virtual_arena import Pace, played, scripted

NAME = "branches"
SUMMARY = "ms per token over RTT and the alternatives drafted beside the line (SPEC 1.9; 5 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

FORWARD_S, JITTER = 0.05, 0.2
RTTS_MS, RTTS_QUICK_MS = (0, 50, 100, 200, 300, 500), (0, 300)
BRANCHES, BRANCHES_QUICK = ("0", "1", "2", "4", "7"), ("0", "4")
DISAGREEMENTS, DISAGREEMENTS_QUICK = (0.4, 0.6, 0.8), (0.6,)
TOKENS = 100
SEEDS, SEEDS_QUICK = 12, 3
CONNECTED_S = 2.0
"""The round trip is known before the question, as in a chat."""

BranchCase = tuple[float, Disclosure, int, str, int]
"""One answer: disagreement, level, round trip in ms, branches, seed."""


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per answer. Raises ExperimentError if what was drafted changed a text."""
    cases = product(
        settings.size(DISAGREEMENTS, DISAGREEMENTS_QUICK),
        (Disclosure.DRAFTS, Disclosure.ANSWER),
        settings.size(RTTS_MS, RTTS_QUICK_MS),
        settings.size(BRANCHES, BRANCHES_QUICK),
        [
            settings.seed + each
            for each in range(settings.size(SEEDS * settings.repeats, SEEDS_QUICK))
        ],
    )
    rows = measure_all(measure, list(cases), progress, processes=True)
    for key, some in grouped(rows, "disagreement", "level", "seed").items():
        if len(distinct(some, "text")) != 1:
            raise ExperimentError(f"what was drafted changed the text of {key}")
    return rows


def measure(case: BranchCase) -> list[Row]:
    """Return one answer of TOKENS tokens."""
    disagreement, level, rtt_ms, branches, seed = case
    script = Script(seed, vocabulary=64, sharpness=3.0, disagreement=disagreement, stop=0.0)
    pace = Pace(FORWARD_S, FORWARD_S, rtt_ms / 1e3, JITTER)
    given = played(
        Question(prompt="q", seed=seed, sampler=Sampler(0.8), max_tokens=TOKENS),
        DragonSettings(codec="race", branches=branches, disclose=level),
        *(scripted(side, script, seconds) for side, seconds in pace.forward_s.items()),
        link=pace.link,
        start_s=CONNECTED_S,
    )
    return [
        {
            "disagreement": disagreement,
            "level": level.value,
            "rtt_ms": rtt_ms,
            "branches": branches,
            "seed": seed,
            "ms_per_token": 1e3 * (given.between_s or 0.0),
            "accepted": given.accepted("device"),
            "bytes_per_token": given.wire_bytes / len(given.tokens),
            "text": zlib.crc32(np.array(given.tokens, "<u4").tobytes()),
        }
    ]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return means, and each as a multiple of that without latency and without branches."""
    summary: dict[str, Any] = {}
    for (_, level), group in grouped(rows, "disagreement", "level").items():
        means = averages(group, "ms_per_token", "rtt_ms", "branches")
        sizes = averages(group, "bytes_per_token", "rtt_ms", "branches")
        found: dict[str, Any] = {}
        accepted = round(mean(group, "accepted"), 3)
        summary[f"level {level}, {accepted} of the device's drafts accepted"] = found
        for (rtt_ms, branches), each in means.items():
            found.setdefault(f"RTT {rtt_ms} ms", {})[branches] = {
                "ms_per_token": each.to_json(),
                "times_without_latency": round(each.value / means[0, "0"].value, 3),
                "bytes_per_token": round(sizes[rtt_ms, branches].value, 1),
            }
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Draw milliseconds per token over the round trip, a line for every number of branches."""
    looks = charts.looks(distinct(rows, "branches"), marker="o")
    levels, disagreements = distinct(rows, "level"), distinct(rows, "disagreement")
    size: dict[str, Any] = {
        "rows": len(levels),
        "columns": len(disagreements),
        "height_inches": 3.2 * len(levels),
    }
    with charts.picture(path, **size) as (_, axes):
        for (disagreement, level), some in grouped(rows, "disagreement", "level").items():
            axis = axes[levels.index(level), disagreements.index(disagreement)]
            found = averages(some, "ms_per_token", "branches", "rtt_ms")
            charts.lines(axis, found, looks, intervals=False)
            axis.set(xlabel="round trip (ms)", ylabel="ms per token")
            axis.set_title(f"{level}, {mean(some, 'accepted'):.2f} accepted", fontsize=9)
        axes[0, 0].legend(title="branches", fontsize=8)
