"""`scripts/campaign/run`: what it prints, and how it ends where something is wrong."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dragonrt.modes.dragon.planner import Planner
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.testing.loop import run as simulate
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import Record
from dragonrt.traces.file import TraceFile, start

Run = Callable[..., Any]


@pytest.fixture
def call(run: Run) -> Run:
    return partial(run, script="campaign")


def test_runs_without_violations_end_well(call: Run) -> None:
    outcome = call("--runs", "3", "--seed", "5")
    assert outcome.code == 0
    first, second, third = outcome.output.splitlines()
    assert first.startswith("3 runs from seed 5: ")
    assert " runs per second, " in first
    assert second.startswith("slowest answer, of the time in which it must end: ")
    assert third == "violations: 0"


def test_the_runs_are_of_one_mode_where_that_is_asked_for(call: Run) -> None:
    outcome = call("--runs", "3", "--mode", "federated")
    assert outcome.code == 0
    slowest = outcome.output.splitlines()[1]
    assert "federated" in slowest
    assert "dragon" not in slowest
    line = call("--mode", "solo").line
    assert line == (
        "unknown mode 'solo': choose one of all, dragon, speculative, federated, sprinter"
    )


def test_the_first_violation_is_named_with_the_command_that_repeats_it(
    call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planner, "limit", property(lambda planner: planner._max_tokens - 1))
    found = call("--runs", "12")
    assert found.code == 1
    repeat = next(line for line in found.output.splitlines() if "repeat it with" in line)
    arguments = repeat.split("scripts/campaign/run ")[1].split()
    again = call(*arguments)
    assert again.code == 1
    assert "violations: 1" in again.output
    assert "Scenario(" in again.output


def write_traces(folder: Path) -> None:
    """Both sides' traces of one short answer."""
    script = Script(5, stop=0.0)
    question = Question(seed=3, sampler=Sampler(temperature=0.8), max_tokens=8)

    def side(name: Side) -> tuple[SimulatedSide, TraceFile]:
        trace = TraceFile.open(folder / name)
        trace.write(Record(0.0, name, 0, start("m")))
        return SimulatedSide(name, lambda _: script, sinks=(trace.write,)), trace

    async def answer() -> None:
        (device, ours), (cloud, theirs) = side("device"), side("cloud")
        server = SimulatedCloud(cloud)
        async with linked_device(server, device, lambda stream: stream) as connected:
            await connected.asking(question, DragonSettings(codec="topp:0.9")).ask()
        await server.wait_idle()
        for trace in (ours, theirs):
            trace.close()

    simulate(answer())


def test_traces_are_replayed_over_another_link(call: Run, tmp_path: Path) -> None:
    write_traces(tmp_path)
    outcome = call("--replay", "device", "cloud", "--latency", "100ms", "--aggregator", "sync")
    assert (outcome.code, outcome.errors) == (0, "")
    (row,) = (line.split() for line in outcome.output.splitlines() if " sync " in line)
    assert (row[0], row[1], row[5]) == ("8", "both", "sync")
    assert 200 < float(row[6]) < 300 > 10 * float(row[2])


def test_what_cannot_be_replayed_is_one_line(call: Run, tmp_path: Path) -> None:
    write_traces(tmp_path)
    assert "cannot read the trace gone" in call("--replay", "gone", "cloud").line
    assert "was expected" in call("--replay", "device", "device").line
    line = call("--replay", "device", "cloud", "--aggregator", "nobody").line
    assert "aggregator must be one of both, greedy" in line
