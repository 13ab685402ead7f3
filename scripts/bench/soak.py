"""Whether memory grows and nobody waits: thousands of short answers of some devices on one cloud.

The devices are connections of this process, the cloud is a second one. No two questions are alike,
so that whatever is kept of one would be seen.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import numpy as np

from dragonrt import bundled
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from scripts.bench.harness import benchmark, progress, series
from scripts.papers.arena import Given, RealArena
from scripts.papers.intervals import Row
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, sample_settings

SAMPLES = 60
WARM_UP = 0.5
"""The part of the answers in which whatever is made once is made."""


@benchmark(
    {
        "side": "{side}",
        "answers": "{answers}",
        "warm": "{warm_mb:.1f} MB",
        "at the end": "{last_mb:.1f} MB",
        "growth": "{mb_per_1000[mean]:+.2f} MB",
        "from": "{mb_per_1000[low]:+.2f} MB",
        "to": "{mb_per_1000[high]:+.2f} MB",
    },
    {
        "devices": "{devices}",
        "answers": "{answers}",
        "alone": "{alone}",
        "median": "{seconds[median]:.2f} s",
        "slowest": "{slowest_s:.2f} s",
    },
    note="Resident memory, sampled as the answers go on; growth: the slope of a line through the "
    "samples of the last half of the answers, in MB per 1,000, give or take two standard errors. "
    "Alone: answers that a device gave without the cloud, or went on with. Seconds are those from "
    "a question to its last token.",
)
def soak(
    *,
    answers: Annotated[int, option("Of all devices.", default="5000", low=SAMPLES)] = 5000,
    devices: int = 4,
    model: str = "dragon-small",
    tokens: int = 8,
    seed: int = 1,
) -> Iterator[Row]:
    """Yield both sides' growth and what the devices saw; by default in ten to twenty minutes."""
    options = ("--model", model, "--documents", str(bundled.documents("cloud")))
    question = Question(seed=seed, sampler=Sampler(0.8), max_tokens=tokens)
    sizes: list[tuple[int, float, float]] = []
    given: list[Given] = []
    with cloud_process(*options, "--device-rate", "1000") as cloud:
        device = LoadedSide.load(sample_settings("device", model))
        port = cloud.wait_ready()

        async def soaked() -> None:
            async with AsyncExitStack() as stack:
                arenas = [
                    await stack.enter_async_context(device.connected(port)) for _ in range(devices)
                ]
                for number in range(SAMPLES):
                    first, last = (answers * each // SAMPLES for each in (number, number + 1))
                    waiting = iter(range(first, last))
                    await asyncio.gather(*(ask(arena, question, waiting) for arena in arenas))
                    sizes.append((last, resident_mb("self"), resident_mb(str(cloud.pid))))
                    progress("{} answers: {:.0f} MB here, {:.0f} in the cloud".format(*sizes[-1]))

        async def ask(arena: RealArena, question: Question, numbers: Iterator[int]) -> None:
            texts = [each.text for each in bundled.questions()]
            for number in numbers:
                prompt = f"{texts[number % len(texts)]} ({number})"
                given.extend(await arena.ask_each([prompt], question, DragonSettings()))

        run(soaked(), virtual=False)
    yield from growths(sizes)
    seconds = [each.seconds for each in given]
    yield {
        "devices": devices,
        "answers": len(given),
        "alone": sum(each.counts.alone_from is not None for each in given),
        "seconds": series(seconds),
        "slowest_s": max(seconds),
    }


def growths(sizes: Sequence[tuple[int, float, float]]) -> Iterator[Row]:
    """Yield each side's growth of (answers, the device's MB, the cloud's MB) after the warm-up."""
    answers, *sides = zip(*sizes, strict=True)
    warm = sum(each <= WARM_UP * answers[-1] for each in answers)
    for side, mb in zip(("device", "cloud"), sides, strict=True):
        thousands = np.array(answers[warm:]) / 1000
        line, spread = np.polyfit(thousands, mb[warm:], 1, cov=True)
        slope, error = float(line[0]), 2 * float(spread[0, 0]) ** 0.5
        yield {
            "side": side,
            "answers": answers[-1],
            "warm_mb": mb[warm],
            "last_mb": mb[-1],
            "mb_per_1000": {"mean": slope, "low": slope - error, "high": slope + error},
            "samples_mb": [round(each, 1) for each in mb],
        }


def resident_mb(pid: str) -> float:
    """Return the resident size of a process. Raises DragonError without /proc."""
    try:
        text = Path("/proc", pid, "status").read_text(encoding="ascii")
        return int(re.findall(r"^VmRSS:\s*(\d+) kB", text, re.MULTILINE)[0]) / 1024
    except (OSError, IndexError):
        raise DragonError("what a process holds in memory is measured on Linux only") from None
