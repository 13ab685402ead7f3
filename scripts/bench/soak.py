"""Whether memory grows: both sides' resident sizes over thousands of short answers.

The device is this process, the cloud a second one. No two questions are alike, so that whatever is
kept of one would be seen.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dragonrt import bundled
from dragonrt.errors import DragonError
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from scripts.bench.report import bench_table, print_report
from scripts.papers.arena import RealArena
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, sample_settings

NOTE = (
    "Resident memory, sampled as the answers go on; growth: the slope of a line through the "
    "samples of the last {counted} answers, in MB per 1,000, give or take two standard errors."
)
SAMPLES = 60
WARM_UP = 0.5
"""The part of the answers in which whatever is made once is made."""
AT_ONCE = 4
"""Answers under way at the same time."""


@dataclass(frozen=True, slots=True)
class Size:
    """Resident megabytes after so many answers."""

    answers: int
    device_mb: float
    cloud_mb: float


def bench_soak(
    *,
    output: Console,
    messages: Console,
    answers: int = 5000,
    model: str = bundled.models()[0],
    tokens: int = 8,
    seed: int = 1,
) -> None:
    """Megabytes of both sides per 1,000 answers; the default takes ten to twenty minutes."""
    options = ("--model", model, "--documents", str(bundled.documents("cloud")))
    with cloud_process(*options, "--device-rate", "1000") as cloud:
        with messages.status("starting two processes"):
            device = LoadedSide.load(sample_settings("device", model))
            port = cloud.wait_ready()
        question = Question(seed=seed, sampler=Sampler(0.8), max_tokens=tokens)
        with messages.status("") as status:

            async def soak() -> tuple[list[Size], int]:
                sizes, alone = [], 0
                async with device.connected(port) as arena:
                    for number in range(SAMPLES):
                        first, last = _part(answers, number), _part(answers, number + 1)
                        alone += await _answer(arena, question, range(first, last))
                        sizes.append(Size(last, resident_mb("self"), resident_mb(str(cloud.pid))))
                        status.update(
                            f"{last} answers: {sizes[-1].device_mb:.0f} MB here, "
                            f"{sizes[-1].cloud_mb:.0f} MB in the cloud"
                        )
                return sizes, alone

            sizes, alone = run(soak(), virtual=False)
    results = growths(sizes)
    table = bench_table("side", "warm", "at the end", "growth", "from", "to")
    for result in results:
        result["alone"] = alone
        cells = (f"{result[name]:.1f} MB" for name in ("warm_mb", "last_mb"))
        slopes = (result["mb_per_1000"], *result["interval"])
        table.add_row(result["side"], *cells, *(f"{each:+.2f} MB" for each in slopes))
    note = NOTE.format(counted=round((1 - WARM_UP) * answers))
    print_report(output, "soak", table, results, seed=seed, note=note)


def growths(sizes: Sequence[Size]) -> list[dict[str, Any]]:
    """Of both sides, in MB per 1,000 answers after the warm-up."""
    found = []
    warm = [each for each in sizes if each.answers > WARM_UP * sizes[-1].answers]
    for side in ("device", "cloud"):
        mb = [getattr(each, f"{side}_mb") for each in warm]
        line, spread = np.polyfit([each.answers / 1000 for each in warm], mb, 1, cov=True)
        slope, error = float(line[0]), 2 * float(spread[0, 0]) ** 0.5
        found.append(
            {
                "side": side,
                "answers": sizes[-1].answers,
                "warm_mb": round(mb[0], 1),
                "last_mb": round(mb[-1], 1),
                "mb_per_1000": round(slope, 3),
                "interval": [round(slope - error, 3), round(slope + error, 3)],
                "samples_mb": [round(getattr(each, f"{side}_mb"), 1) for each in sizes],
            }
        )
    return found


def resident_mb(pid: str) -> float:
    """The resident size of a process. Raises DragonError where the system does not tell it."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    raise DragonError("this system does not say how much memory a process has: use Linux")


def _part(answers: int, number: int) -> int:
    return answers * number // SAMPLES


async def _answer(arena: RealArena, question: Question, numbers: range) -> int:
    """Ask as many questions; returns how many the device answered alone."""
    texts = [each.text for each in bundled.questions()]
    waiting, alone = iter(numbers), 0

    async def ask() -> None:
        nonlocal alone
        for number in waiting:
            prompt = f"{texts[number % len(texts)]} ({number})"
            conversation = arena.conversation(question, DragonSettings())
            reply = await conversation.ask(prompt)
            alone += reply.statistics()["alone_from"] is not None

    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return alone
