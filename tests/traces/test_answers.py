"""Traces of simulated answers: both sides agree with each other, with the answer, and live."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes import entry_of
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.node.answers.client_session import Answer
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, scripted_resources
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Record
from dragonrt.traces.file import TraceFile, read_trace, start
from dragonrt.traces.statistics import split, statistics, summary

SCRIPT = Script(seed=3, disagreement=0.7, stop=0.01)


@dataclass(frozen=True)
class Traced:
    """An answer, and what both sides' files hold."""

    answer: Answer
    records: Mapping[Side, list[Record]]

    @property
    def live(self) -> dict[str, Any]:
        figures = entry_of(self.answer.settings).statistics
        return statistics(AnswerCounts.of(self.answer.records), figures)


def asked(settings: Settings, path: Path, seed: int = 1) -> Traced:
    """One simulated answer, traced on both sides."""
    files: dict[Side, TraceFile] = {side: TraceFile(path / side) for side in ("device", "cloud")}

    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, *LinkProfile(latency_s=0.02).models("device"))

    async def ask() -> Answer:
        device, cloud = (
            SimulatedSide(side, lambda _: SCRIPT, seed, sinks=(file.write,))
            for side, file in files.items()
        )
        for side in (device, cloud):
            side.recorder.event(0, start("simulated"))
        server = SimulatedCloud(cloud)
        question = Question(
            prompt="?", seed=seed, sampler=Sampler(0.7), max_tokens=24, stop_tokens=(0,)
        )
        resources = scripted_resources(settings, SCRIPT.vocabulary)
        async with linked_device(server, device, emulate) as connected:
            answer = await connected.asking(question, settings, resources).ask()
            await asyncio.sleep(1)
        await server.wait_idle()
        return answer

    answer = run(ask())
    for file in files.values():
        file.close()
    return Traced(answer, {side: read_trace(path / side) for side in files})


MODES: dict[str, Settings] = {
    "leaderless": DragonSettings(),
    "greedy": DragonSettings(aggregator=Aggregator.GREEDY),
    "synchronous": DragonSettings(aggregator=Aggregator.SYNC),
    "speculative": SpeculativeSettings(),
    "conformal": SpeculativeSettings(rule="rejection", codec="csqs:0.2:60"),
    "federated": FederatedSettings(codec="topk:8:residual"),
    "sprinter": SprinterSettings(codec="topk:8:renorm"),
}


@pytest.mark.parametrize("name", MODES)
def test_the_traces_of_both_sides_agree_with_the_answer(name: str, tmp_path: Path) -> None:
    traced = asked(MODES[name], tmp_path)
    answer, live = traced.answer, traced.live
    (ours,), (theirs,) = (split(traced.records[side])[0] for side in ("device", "cloud"))
    counts, others = AnswerCounts.of(ours), AnswerCounts.of(theirs)
    assert counts.tokens == live["tokens"] == len(answer.tokens) > 5
    assert counts.bytes_sent == others.bytes_received > 0
    assert counts.bytes_received == others.bytes_sent > 0
    assert live["bytes_sent"] >= counts.bytes_sent, "probes are counted, too"
    assert live["rtt_ms"] == pytest.approx(40, abs=5)
    assert counts.closed is not None
    assert counts.closed.finish == answer.finish.value
    assert counts.first_token_s == pytest.approx([answer.decisions[0][0] - answer.asked_s])
    if name != "federated":  # its workers judge nothing
        assert counts.verified == others.verified
        assert counts.accepted_tokens == others.accepted_tokens
    assert summary(traced.records["device"])["probes"]["samples"], "probes are in the trace"
    assert statistics(counts, entry_of(answer.settings).statistics) == live
    if name in ("leaderless", "greedy", "synchronous"):
        assert others.tokens == counts.tokens
    else:
        assert (counts.blocks > 0, others.tokens) == (True, 0)
        assert live["drafted"] >= live["accepted"] > 0
    dropped = counts.dropped_mass
    assert (dropped is None) == (name != "conformal")
    if dropped is not None:
        assert dropped.follows
        assert dropped.tokens >= len(answer.tokens)
        assert dropped.dropped <= dropped.allowed
