"""`dragonrt simulate`: what it prints, and how it ends where something is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dragonrt.runtime.lookahead import Lookahead
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.trace import TraceFile
from dragonrt.simulation.drafter import Script

from dragonrt.sampling.samplers import Sampler
from dragonrt.simulation.loop import run as simulate
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide, linked_device

Run = Callable[..., Any]


def test_runs_without_violations_end_well(run: Run) -> None:
    outcome = run("simulate", "--runs", "3", "--seed", "5")
    assert outcome.code == 0
    first, second = outcome.output.splitlines()
    assert first.startswith("3 runs from seed 5: ")
    assert " runs per second, " in first
    assert second == "violations: 0"


def test_the_first_violation_is_named_with_the_command_that_repeats_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lookahead, "limit", lambda lookahead, _: lookahead.plan.max_tokens - 1)
    found = run("simulate", "--runs", "12")
    assert found.code == 1
    repeat = next(line for line in found.output.splitlines() if "repeat it with" in line)
    arguments = repeat.split("dragonrt ")[1].split()
    again = run(*arguments)
    assert again.code == 1
    assert "violations: 1" in again.output
    assert "Scenario(" in again.output


def write_traces(folder: Path) -> None:
    """Both sides' traces of one short answer."""
    plan = Plan(3, Sampler(temperature=0.8), codec="topp:0.9", max_tokens=8)
    script = Script(5, stop=0.0)

    async def answer() -> None:
        traces = {side: TraceFile.open(folder / side, side, "m") for side in ("device", "cloud")}
        device, cloud = (
            SimulatedSide(side, lambda _: script, trace=trace) for side, trace in traces.items()
        )
        server = SimulatedCloud(cloud)
        async with linked_device(server, device, lambda stream: stream) as connected:
            await connected.asking(plan).ask("?")
        await server.wait_idle()
        for trace in traces.values():
            trace.close()

    simulate(answer())


def test_traces_are_replayed_over_another_link(run: Run, tmp_path: Path) -> None:
    write_traces(tmp_path)
    outcome = run(
        "simulate", "--replay", "device", "cloud", "--latency", "100ms", "--aggregator", "sync"
    )
    assert (outcome.code, outcome.errors) == (0, "")
    (row,) = (line.split() for line in outcome.output.splitlines() if " sync " in line)
    assert (row[0], row[1], row[5]) == ("8", "both", "sync")
    assert 200 < float(row[6]) < 300 > 10 * float(row[2])


def test_what_cannot_be_replayed_is_one_line(run: Run, tmp_path: Path) -> None:
    write_traces(tmp_path)
    assert "cannot read the trace gone" in run("simulate", "--replay", "gone", "cloud").line
    assert "was expected" in run("simulate", "--replay", "device", "device").line
    line = run("simulate", "--replay", "device", "cloud", "--aggregator", "nobody").line
    assert "unknown aggregator 'nobody'" in line
