"""Clouds that are killed in the middle of answers: what a person sees of it.

Two hosts give an answer. The one that does is killed without a word after a random token; then, in
the next answer, the other one. Both are started again, and so on.
"""

import itertools
import os
import random
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from dragonrt.control.scheduler import Aggregator
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.modes.mode import OnLoss
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node import main as programs
from dragonrt.node.addresses import Member
from dragonrt.node.client_session import Answer
from dragonrt.node.endpoints import Address
from dragonrt.sampling.samplers import Sampler
from dragonrt.timeouts import USUAL
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Record, TokenDecided
from scripts.bench.http_kills import HttpKill, kills_over_http
from scripts.bench.report import bench_table, print_report
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, sample_settings

NOTE = (
    "Same text: as without a kill; with no host left, up to the token from which on the device "
    f"answers alone. Gap: the longest between two tokens; without a host {USUAL.rejoin_s:g} s "
    "pass. Over HTTP the cloud is killed within shown text and started again; same: no piece was "
    "taken back, and all before the kill is what both sides say; complete: the next answer is."
)
WAITING = DragonSettings(codec="dense:fp16", aggregator=Aggregator.SYNC)
"""Every token waits for the cloud."""


@dataclass(frozen=True, slots=True)
class Kill:
    """An answer in which a host was killed after token `point`, `left` others being there."""

    point: int
    left: int
    same: bool
    complete: bool
    alone_from: int | None
    gap_s: float


def bench_kill(
    *,
    output: Console,
    messages: Console,
    rounds: int = 10,
    model: str = "dragon-draft",
    tokens: int = 32,
    seed: int = 1,
) -> None:
    """Two kills a round, at points drawn by `seed`."""
    chance, kills = random.Random(seed), []
    device = LoadedSide.load(sample_settings("device", model))
    question = Question(
        prompt="What do you need to make lemon cake?",
        seed=seed,
        sampler=Sampler(5.0),
        max_tokens=tokens,
    )
    with messages.status("") as status:
        for number in range(rounds):
            status.update(f"round {number + 1} of {rounds}")
            with ExitStack() as stack:
                hosts = [stack.enter_context(cloud_process(model=model)) for _ in range(2)]
                ports = {str(host.wait_ready()): host for host in hosts}
                points = [chance.randrange(1, tokens - 2) for _ in range(2)]
                kills += run(_round(device, ports, question, points), virtual=False)
    table = bench_table("hosts left", "kills", "same text", "complete", "alone", "longest gap")
    results = [_result(left, [each for each in kills if each.left == left]) for left in (1, 0)]
    ways: tuple[OnLoss, ...] = ("alone", "wait")
    for on_loss in ways:
        points = [chance.randrange(2, tokens // 2) for _ in range(rounds)]
        with messages.status(f"over HTTP, --on-loss {on_loss}"):
            found = kills_over_http(points, on_loss, tokens=tokens)
        results.append(_http_result(on_loss, found))
    for result in results:
        table.add_row(
            str(result["left"]),
            str(result["kills"]),
            str(result["same"]),
            str(result["complete"]),
            str(result["alone"]),
            f"{result['longest_gap_s']:.2f} s",
        )
    print_report(output, "kill", table, results, seed=seed, note=NOTE)


def _result(left: int, kills: Sequence[Kill]) -> dict[str, Any]:
    return {
        "left": left,
        "kills": len(kills),
        "same": sum(each.same for each in kills),
        "complete": sum(each.complete for each in kills),
        "alone": sum(each.alone_from is not None for each in kills),
        "longest_gap_s": round(max(each.gap_s for each in kills), 3),
        "points": [each.point for each in kills],
        "gaps_s": [round(each.gap_s, 3) for each in kills],
    }


def _http_result(on_loss: OnLoss, kills: Sequence[HttpKill]) -> dict[str, Any]:
    gone = sum(not each.whole for each in kills)
    return {
        "left": f"0, HTTP, {on_loss}",
        "kills": len(kills),
        "same": sum(each.kept for each in kills),
        "complete": sum(each.again for each in kills),
        "alone": gone,
        "longest_gap_s": round(max(each.gap_s for each in kills), 3),
        "points": [each.point for each in kills],
        "gaps_s": [round(each.gap_s, 3) for each in kills],
    }


async def _round(
    side: LoadedSide, hosts: dict[str, CloudProcess], question: Question, points: Sequence[int]
) -> list[Kill]:
    known = tuple(Member(port, Address("127.0.0.1", int(port))) for port in hosts)
    fleet = Member("cloud", known[0].address, hosts=known)
    found = []
    async with programs.device(side.settings, side.model, side.library, [fleet], WAITING) as device:
        whole = (await device.asking(question).ask()).tokens
        for left, point in zip((1, 0), points, strict=True):
            peer = device.connectors["cloud"].for_answer(question).peer
            assert peer is not None
            answer = await _killed(device, question, hosts[peer.name.split(":")[-1]], point)
            alone_from = AnswerCounts.of(answer.records).alone_from
            times = [t for t, _ in answer.decisions]
            found.append(
                Kill(
                    point,
                    left,
                    answer.tokens[:alone_from] == whole[:alone_from],
                    len(answer.tokens) == len(whole),
                    alone_from,
                    max(b - a for a, b in itertools.pairwise(times)),
                )
            )
    return found


async def _killed(
    device: programs.Device, question: Question, host: CloudProcess, point: int
) -> Answer:
    def hear(record: Record) -> None:
        if isinstance(record.event, TokenDecided) and record.event.step == point:
            os.kill(host.pid, signal.SIGKILL)

    return await device.asking(question, hear).ask()
