"""Recorded answers: replayed as they were, over other links, by other aggregators."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import Answer
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, SimulatedContext, SimulatedModel
from dragonrt.traces import events
from dragonrt.traces.events import Record
from scripts.campaign.recorded import RecordingError, recordings
from scripts.campaign.replay import replay

Records = list[Record]
SCRIPT = Script(5, sharpness=2.0, disagreement=1.0, stop=0.0)
DELAYS_S: dict[Side, float] = {"device": 0.05, "cloud": 0.03}
QUESTION = Question(seed=3, sampler=Sampler(temperature=0.8), max_tokens=24)


def link(latency_s: float) -> Callable[[Stream], Stream]:
    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, *LinkProfile(latency_s=latency_s).models("device"))

    return emulate


def settings_of(rule: str, aggregator: Aggregator) -> DragonSettings:
    return DragonSettings(rule=rule, aggregator=aggregator, codec="topp:0.9", run_ahead=8)


BOTH = settings_of("coupled", Aggregator.BOTH)


def record(
    settings: DragonSettings, seeds: tuple[int, ...] = (3,), latency_s: float = 0.02
) -> tuple[Answer, Records, Records]:
    """The last answer, and both sides' records of all of them."""
    kept: dict[Side, Records] = {"device": [], "cloud": []}

    def side(name: Side) -> SimulatedSide:
        def steady(model: SimulatedModel, delay_s: Callable[[], float]) -> SimulatedContext:
            return SimulatedContext(model, lambda: DELAYS_S[name])

        return SimulatedSide(
            name, lambda _: SCRIPT, make_context=steady, sinks=(kept[name].append,)
        )

    async def ask() -> Answer:
        server = SimulatedCloud(side("cloud"))
        async with linked_device(server, side("device"), link(latency_s)) as device:
            for seed in seeds:
                given = await device.asking(replace(QUESTION, seed=seed), settings).ask()
        await server.wait_idle()
        return given

    return run(ask()), kept["device"], kept["cloud"]


def pace(answer: Answer) -> float:
    times = [t for t, _ in answer.decisions]
    return (times[-1] - times[0]) / (len(times) - 1)


@pytest.mark.parametrize(
    ("rule", "aggregator"),
    [
        ("coupled", Aggregator.BOTH),
        ("coupled", Aggregator.GREEDY),
        ("algorithm1", Aggregator.GREEDY),
        ("algorithm1", Aggregator.SYNC),
    ],
)
def test_a_recording_replays_as_it_was(rule: str, aggregator: Aggregator) -> None:
    given, device, cloud = record(replace(settings_of(rule, aggregator), follow=False))
    (recording,) = recordings(device, cloud)
    again = replay(recording, link(0.02))
    assert again.tokens == given.tokens == list(recording.tokens)
    assert pace(again) == pytest.approx(recording.seconds_per_token, rel=1e-3)
    assert pace(again) == pytest.approx(pace(given), rel=1e-3)
    accepted = [event.cloud for _, event in again.decisions if event.cloud is not None]
    if aggregator is Aggregator.BOTH:
        assert recording.accepted["cloud"] == sum(accepted) / len(accepted)


def test_other_links_and_aggregators_change_the_pace_alone() -> None:
    given, device, cloud = record(BOTH)
    (recording,) = recordings(device, cloud)
    paces = {}
    for aggregator in (Aggregator.BOTH, Aggregator.GREEDY, Aggregator.DEVICE, Aggregator.SYNC):
        answer = replay(recording.under({"aggregator": aggregator}), link(0.15))
        assert answer.tokens == given.tokens
        paces[aggregator] = pace(answer)
    assert paces[Aggregator.BOTH] < paces[Aggregator.DEVICE] < paces[Aggregator.SYNC]
    assert paces[Aggregator.SYNC] == pytest.approx(0.3 + 0.03, rel=0.05)


def test_a_scheduler_that_the_rule_does_not_allow_is_refused() -> None:
    (recording,) = recordings(*record(settings_of("algorithm1", Aggregator.DEVICE))[1:])
    with pytest.raises(DragonError, match="coupled noise"):
        recording.under({"aggregator": "both"})
    changed = recording.under({"aggregator": "cloud", "run_ahead": 4, "follow": False})
    assert (changed.settings.run_ahead, changed.settings.follow) == (4, False)
    assert recording.under({}) == recording


def test_all_answers_of_a_trace_are_found() -> None:
    found = recordings(*record(BOTH, (3, 4, 3))[1:])
    assert [recording.question.seed for recording in found] == [3, 4, 3]
    assert found[0].tokens == found[2].tokens != found[1].tokens


@pytest.fixture(name="traces", scope="module")
def recorded_traces() -> tuple[Records, Records]:
    _, device, cloud = record(BOTH)
    return device, cloud


def test_gaps_are_named(traces: tuple[Records, Records]) -> None:
    device, cloud = traces
    gap = [
        each
        for each in cloud
        if not (isinstance(each.event, events.Drafted) and each.event.step == 5)
    ]
    (recording,) = recordings(device, gap)
    with pytest.raises(RecordingError, match="the cloud's trace has no draft of step 5"):
        replay(recording)


def opened(records: Records, change: Callable[[events.AnswerOpened], Any]) -> Records:
    """The records with another opening."""
    return [
        replace(each, event=change(each.event))
        if isinstance(each.event, events.AnswerOpened)
        else each
        for each in records
    ]


def test_traces_without_what_is_needed_are_refused(traces: tuple[Records, Records]) -> None:
    device, cloud = traces

    def without(event: events.AnswerOpened) -> events.AnswerOpened:
        left = {name: each for name, each in event.settings.items() if name != "temperature"}
        return replace(event, settings=left)

    with pytest.raises(RecordingError, match="'temperature': record the run again"):
        recordings(opened(device, without), cloud)
    undrafted = [each for each in device if not isinstance(each.event, events.Drafted)]
    with pytest.raises(RecordingError, match="hold no drafts"):
        recordings(undrafted, cloud)


def test_traces_of_two_runs_or_of_one_side_are_refused(traces: tuple[Records, Records]) -> None:
    device, cloud = traces
    _, other, _ = record(BOTH, (9,))
    with pytest.raises(RecordingError, match="no answer in common"):
        recordings(other, cloud)
    with pytest.raises(RecordingError, match="trace was expected"):
        recordings(cloud, device)


def test_answers_that_were_resumed_or_of_another_mode_are_left_out(
    traces: tuple[Records, Records],
) -> None:
    device, cloud = traces
    with pytest.raises(RecordingError, match="from its first token"):
        recordings(opened(device, lambda event: replace(event, accepted=2)), cloud)
    with pytest.raises(RecordingError, match="no answer in common"):
        recordings(opened(device, lambda event: replace(event, mode="sprinter")), cloud)
