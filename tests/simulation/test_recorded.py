"""Recorded answers: replayed as they were, over other links, by other aggregators."""

import asyncio
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime.modes.dragon import Answer
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import TraceFile
from dragonrt.runtime.trace_summary import read_events
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script, SimulatedDrafter
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.simulation.recorded import Recording, RecordingError, recordings
from dragonrt.simulation.replay import replay

Events = list[dict[str, Any]]
SCRIPT = Script(5, sharpness=2.0, disagreement=1.0, stop=0.0)
DELAYS_S: dict[Side, float] = {"device": 0.05, "cloud": 0.03}


def link(latency_s: float) -> Any:
    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, *LinkProfile(latency_s=latency_s).models("device"))

    return emulate


def plan_of(rule: str, placement: Placement, seed: int = 3) -> Plan:
    return Plan(
        seed, Sampler(temperature=0.8), rule, placement, "topp:0.9", max_tokens=24, run_ahead=8
    )


def record(plans: list[Plan], latency_s: float = 0.02) -> tuple[Answer, Events, Events]:
    """The last answer, and both sides' traces of all of them."""
    files = {"device": io.StringIO(), "cloud": io.StringIO()}

    def make(side: Side, plan: Plan, script: Script, _: object) -> SimulatedDrafter:
        return SimulatedDrafter(side, plan, script, lambda: DELAYS_S[side])

    async def ask() -> Answer:
        clock = asyncio.get_running_loop().time
        device, cloud = (
            SimulatedSide(
                side,
                lambda _: SCRIPT,
                make_drafter=make,
                trace=TraceFile(files[side], clock, side=side),
            )
            for side in ("device", "cloud")
        )
        server = SimulatedCloud(cloud)
        async with linked_device(server, device, link(latency_s)) as connected:
            for plan in plans:
                given = await connected.asking(plan).ask("?")
        await server.wait_idle()
        return given

    given = run(ask())
    ours, theirs = (
        read_events(files[side].getvalue().splitlines(keepends=True), side)
        for side in ("device", "cloud")
    )
    return given, ours, theirs


def pace(answer: Answer) -> float:
    times = [decision.time_s for decision in answer.decisions]
    return (times[-1] - times[0]) / (len(times) - 1)


@pytest.mark.parametrize(
    ("rule", "placement"),
    [
        ("coupled", Placement.BOTH),
        ("coupled", Placement.GREEDY),
        ("algorithm1", Placement.GREEDY),
        ("algorithm1", Placement.SYNC),
    ],
)
def test_a_recording_replays_as_it_was(rule: str, placement: Placement) -> None:
    given, device, cloud = record([replace(plan_of(rule, placement), follow=False)])
    (recording,) = recordings(device, cloud)
    again = replay(recording, link(0.02))
    assert again.tokens == given.tokens == list(recording.tokens)
    assert pace(again) == pytest.approx(recording.seconds_per_token, rel=1e-3)
    assert pace(again) == pytest.approx(pace(given), rel=1e-3)
    counts = again.counts
    if placement is Placement.BOTH:
        assert recording.accepted["cloud"] == counts.other_accepted / counts.other_compared


def test_other_links_and_aggregators_change_the_pace_alone() -> None:
    given, device, cloud = record([plan_of("coupled", Placement.BOTH)])
    (recording,) = recordings(device, cloud)
    paces = {}
    for placement in (Placement.BOTH, Placement.GREEDY, Placement.DEVICE, Placement.SYNC):
        answer = replay(recording.under(placement, None, None), link(0.15))
        assert answer.tokens == given.tokens
        paces[placement] = pace(answer)
    assert paces[Placement.BOTH] < paces[Placement.DEVICE] < paces[Placement.SYNC]
    assert paces[Placement.SYNC] == pytest.approx(0.3 + 0.03, rel=0.05)


def test_a_scheduler_that_the_rule_does_not_allow_is_refused() -> None:
    _, device, cloud = record([plan_of("algorithm1", Placement.DEVICE)])
    (recording,) = recordings(device, cloud)
    with pytest.raises(DragonError, match="coupled noise"):
        recording.under(Placement.BOTH, None, None)
    changed = recording.under(Placement.CLOUD, 4, False)
    assert (changed.plan.run_ahead, changed.plan.follow) == (4, False)


def test_all_answers_of_a_trace_are_found() -> None:
    plans = [plan_of("coupled", Placement.BOTH, seed) for seed in (3, 4, 3)]
    _, device, cloud = record(plans)
    found = recordings(device, cloud)
    assert [recording.plan.seed for recording in found] == [3, 4, 3]
    assert found[0].tokens == found[2].tokens != found[1].tokens


@pytest.fixture(name="traces", scope="module")
def recorded_traces() -> tuple[Events, Events]:
    _, device, cloud = record([plan_of("coupled", Placement.BOTH)])
    return device, cloud


def test_gaps_are_named(traces: tuple[Events, Events]) -> None:
    device, cloud = traces
    gap = [event for event in cloud if (event["event"], event.get("step")) != ("draft", 5)]
    (recording,) = recordings(device, gap)
    with pytest.raises(RecordingError, match="the cloud's trace has no draft of step 5"):
        replay(recording)


def without(events: Events, key: str) -> Events:
    return [{name: value for name, value in event.items() if name != key} for event in events]


@pytest.mark.parametrize("missing", ["payload", "temperature", "relevance", "vocabulary"])
def test_traces_without_what_is_needed_are_refused(
    traces: tuple[Events, Events], missing: str
) -> None:
    device, cloud = traces
    with pytest.raises(RecordingError, match="record the run again"):
        recordings(without(device, missing), cloud)


def test_traces_of_two_runs_or_of_one_side_are_refused(traces: tuple[Events, Events]) -> None:
    device, cloud = traces
    _, other, _ = record([plan_of("coupled", Placement.BOTH, seed=9)])
    with pytest.raises(RecordingError, match="no answer in common"):
        recordings(other, cloud)
    with pytest.raises(RecordingError, match="trace was expected"):
        recordings(cloud, device)
    damaged = json.loads(json.dumps(cloud).replace('"payload": "', '"payload": "?'))
    with pytest.raises(RecordingError, match="a draft event"):
        recordings(device, damaged)


def test_an_answer_that_was_resumed_is_left_out(traces: tuple[Events, Events]) -> None:
    device, cloud = traces
    resumed = [event | ({"accepted": 2} if event["event"] == "open" else {}) for event in device]
    with pytest.raises(RecordingError, match="from its first token"):
        recordings(resumed, cloud)


def test_recordings_are_values(traces: tuple[Events, Events]) -> None:
    (recording,) = recordings(*traces)
    assert isinstance(recording, Recording)
    assert recording.under(None, None, None) == recording
