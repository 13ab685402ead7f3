"""Many devices on one cloud: whether all are answered, how fast, and what it takes of memory.

The devices are connections of this process, which share one model; the cloud is a second process.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import Answer, ClientSession
from dragonrt.node.endpoints import Address, Identity, connector
from dragonrt.node.hosts import Hosts
from dragonrt.node.local_side import LocalSide
from dragonrt.node.process import local_side
from dragonrt.traces.counts import AnswerCounts
from scripts.bench.report import bench_table, print_report
from scripts.bench.soak import resident_mb
from scripts.papers.arena import Arena
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, sample_settings

NOTE = (
    "Alone: answers that the device gave without the cloud, or went on with. Seconds are those "
    "from a question to its last token; memory is that of the cloud's process."
)
SAMPLES = 12


@dataclass(frozen=True, slots=True)
class Crowd:
    """What became of all questions, and the cloud's resident megabytes, evenly sampled."""

    seconds: tuple[float, ...]
    alone: int
    failed: int
    memory_mb: tuple[float, ...]


def bench_devices(
    *,
    output: Console,
    messages: Console,
    devices: int = 50,
    seconds: float = 60.0,
    model: str = "dragon-draft",
    tokens: int = 8,
) -> None:
    """So many devices ask one question after another for so long."""
    options = ("--model", model, "--documents", str(bundled.documents("cloud")))
    with cloud_process(*options) as cloud:
        with messages.status("starting two processes"):
            device = LoadedSide.load(sample_settings("device", model))
            port = cloud.wait_ready()
        with messages.status(f"{devices} devices ask for {seconds:g} s"):
            crowd = run(_crowd(device, port, cloud.pid, devices, seconds, tokens), virtual=False)
    table = bench_table("devices", "answers", "alone", "failed", "median", "slowest", "memory")
    result = _result(crowd, devices, seconds)
    first, *_, last = result["memory_mb"]
    table.add_row(
        str(devices),
        str(result["answers"]),
        str(crowd.alone),
        str(crowd.failed),
        f"{result['median_s']:.2f} s",
        f"{result['slowest_s']:.2f} s",
        f"{first:.0f} to {last:.0f} MB",
    )
    print_report(output, "devices", table, [result], note=NOTE)


def _result(crowd: Crowd, devices: int, seconds: float) -> dict[str, Any]:
    return {
        "devices": devices,
        "seconds": seconds,
        "answers": len(crowd.seconds),
        "alone": crowd.alone,
        "failed": crowd.failed,
        "median_s": round(median(crowd.seconds or (0.0,)), 3),
        "slowest_s": round(max(crowd.seconds, default=0.0), 3),
        "memory_mb": [round(each, 1) for each in crowd.memory_mb],
    }


async def _crowd(
    device: LoadedSide, port: int, pid: int, devices: int, seconds: float, tokens: int
) -> Crowd:
    clock, question = asyncio.get_running_loop().time, Question(max_tokens=tokens)
    async with AsyncExitStack() as stack:
        side = await stack.enter_async_context(
            local_side(device.settings, device.model, device.library)
        )
        made = [await _connected(side, port, stack) for _ in range(devices)]
        end_s = clock() + seconds
        asking = [
            asyncio.create_task(_ask(side, each, question, number, end_s), name="device")
            for number, each in enumerate(made)
        ]
        memory = []
        for _ in range(SAMPLES):
            memory.append(resident_mb(str(pid)))
            await asyncio.wait(asking, timeout=seconds / SAMPLES)
        memory.append(resident_mb(str(pid)))
        found = await asyncio.gather(*asking)
    answers = [answer for each in found for answer in each]
    given = [answer for answer in answers if answer is not None and answer.decisions]
    lost = [AnswerCounts.of(each.records).alone_from is not None for each in given]
    times = tuple(each.decisions[-1][0] - each.asked_s for each in given)
    return Crowd(times, sum(lost), len(answers) - len(given), tuple(memory))


async def _connected(side: LocalSide, port: int, stack: AsyncExitStack) -> Hosts:
    """A device of its own, for as long as the stack lives."""
    known, cloud = Identity("device", side.model), Address("127.0.0.1", port)
    link = Hosts({"cloud": connector(cloud, known, side.timeouts, side.recorder)})
    await link.connect()
    keeper = asyncio.create_task(link.run(), name="connector")

    async def end() -> None:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)

    stack.push_async_callback(end)
    return link


async def _ask(
    side: LocalSide, link: Hosts, question: Question, number: int, end_s: float
) -> Sequence[Answer | None]:
    """The answers of one device, None for one that failed."""
    clock, prompts = asyncio.get_running_loop().time, [each.text for each in bundled.questions()]
    resources = Arena(side, {"cloud": link}).resources(DragonSettings())
    found: list[Answer | None] = []
    while clock() < end_s:
        prompt = f"{prompts[number % len(prompts)]} ({number}, {len(found)})"
        asked = replace(question, prompt=prompt, seed=number)
        try:
            answer = await ClientSession(
                side, {"cloud": link}, asked, DragonSettings(), resources
            ).ask()
        except Exception:  # whatever it is, it is counted
            found.append(None)
        else:
            found.append(answer)
    return found
