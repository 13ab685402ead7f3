"""Numbers of an answer: of each mode, to the number; live the same as from its file."""

from pathlib import Path
from typing import Any

import pytest

from dragonrt.modes import MODES
from dragonrt.traces import events
from dragonrt.traces.counts import AnswerCounts, DroppedMass
from dragonrt.traces.events import Event, Record
from dragonrt.traces.file import Recorder, TraceFile, read_trace, start
from dragonrt.traces.statistics import ledger, statistics

Happened = tuple[float, Event] | tuple[float, Event, str]


def decided(
    device: bool | None, cloud: bool | None = None, cause: events.Cause = "target"
) -> Event:
    return events.TokenDecided(0, 7, device, cloud, cause, 0.125, 0.5)


def opened(mode: str, **settings: Any) -> events.AnswerOpened:
    shown = {"seed": 3, "codec": "x", **settings}
    return events.AnswerOpened(mode, 0, shown, mode != "sprinter")


COMMON: list[Happened] = [
    (1.0, events.MessageSent("open", 90)),
    (1.1, events.MessageReceived("opened", 20)),
    (1.1, events.LinkProbed(rtt=0.5)),
]
TOTAL = 100, 30, 0.25  # bytes with the probes', and the round trip
COMMON_NUMBERS = {
    "padding_sent": 0,
    "padding_received": 0,
    "frame_wait_ms": None,
    "time_to_first_token_ms": 500.0,
    "total_ms": 1500.0,
    "bytes_sent": 100,
    "bytes_received": 30,
    "rtt_ms": 250.0,
}

DRAGON: list[Happened] = [
    (1.0, opened("dragon")),
    *COMMON,
    (1.2, events.ForwardDone(0, 3, 0.03)),
    (1.5, decided(True, False, "other")),
    (1.5, events.RolledBack(1, 4)),
    (1.5, events.ForwardPreempted(3)),
    (1.5, events.ForwardStopped(3, 0.01)),
    (1.7, decided(False, True, "own")),
    (1.7, events.AggregatorSwitched(2, "cloud", 0.5)),
    (1.8, decided(None, True)),
    (1.9, events.TextsDiverged(3)),
    (1.9, events.WentAlone(3)),
    (2.0, decided(True, None, "own")),
    (2.1, events.Rejoined(4)),
    (2.1, events.AnswerOpened("dragon", 4, {"seed": 3})),
    (2.2, events.WentAlone(4)),
    (2.5, decided(True, True, "own")),
    (2.5, events.AnswerClosed("length", *TOTAL)),
]
DRAGON_NUMBERS = {
    "tokens": 5,
    "ms_per_token": 250.0,
    "bytes_per_token": 26.0,
    "acceptance": {"device": round(2 / 3, 4), "cloud": round(2 / 3, 4)},
    "forwards": 1,
    "preempted": 1,
    "rollbacks": 1,
    "switches": 1,
    "divergences": 1,
    "alone_from": 3,
}

ETA, ALPHA = 0.5, 0.25
SPECULATIVE: list[Happened] = [
    (1.0, opened("speculative", learning_rate=ETA, target=ALPHA)),
    *COMMON,
    *((1.1 + step / 10, events.ForwardDone(step, 1, 0.0625)) for step in range(4)),
    (1.2, events.BlockSent(1, 0, 2, 40, 0.125)),
    (1.3, events.BlockSent(2, 3, 3, 60, 0.125)),
    (1.4, events.ForwardStopped(6, 0.01)),
    (1.5, events.BlockJudged(1, 2, 1, 9, 0.5, 0.25)),
    (1.5, events.ThresholdMoved(0, 0.1, 0.25)),
    (1.5, events.ThresholdMoved(1, 0.1, 0.75)),
    (1.5, decided(True)),
    (1.5, decided(False)),
    (1.5, events.TargetDecoded(2, 4)),
    (1.6, events.BlockOutrun(2, 1)),
    (2.0, events.WentAlone(2)),
    (2.5, decided(None, None, "own")),
    (2.5, events.AnswerClosed("stop", *TOTAL)),
]
SPECULATIVE_NUMBERS = {
    "tokens": 3,
    "ms_per_token": 500.0,
    "bytes_per_token": 43.3,
    "acceptance": {"device": 0.6667},
    "blocks": 2,
    "drafted": 5,
    "accepted": 2,
    "decoded_by_cloud": 1,
    "resampled": 1,
    "resampling_rate": 1.0,
    "wasted": 2,
    "bits_up": 100,
    "bits_per_token": 33.3,
    "forwards": 4,
    "preempted": 1,
    "draft_ms": 250.0,
    "verify_ms": 250.0,
    "waited_ms": 500.0,
    "alone_from": 2,
    "conformal": {
        "tokens": 2,
        "average_dropped": 0.5,
        "beta": 0.1 - ETA * 0.5,
        "bound": ALPHA + (0.1 + 1 + ETA * ALPHA) / (ETA * 2),
        "says_nothing": True,
        "follows": True,
    },
}

SPRINTER: list[Happened] = [
    (1.0, opened("sprinter")),
    *COMMON,
    (1.5, decided(True, None, "own")),
    (1.6, decided(True, None, "own")),
    (1.7, events.BlockSent(1, 2, 1, 40, 0.0)),
    (1.8, events.BlockJudged(1, 1, 0, 9, 0.5, 0.25)),
    (1.8, decided(False)),
    (1.9, events.BlockSent(2, 3, 1, 40, 0.0)),
    (2.0, events.BlockJudged(2, 1, 1, 9, 0.5, 0.25)),
    (2.0, decided(True)),
    (2.5, decided(True, None, "own")),
    (2.5, events.AnswerClosed("length", *TOTAL)),
]
SPRINTER_NUMBERS = {
    "tokens": 5,
    "ms_per_token": 250.0,
    "bytes_per_token": 26.0,
    "acceptance": {"device": 0.8},
    "blocks": 2,
    "drafted": 5,
    "accepted": 4,
    "resampled": 1,
    "resampling_rate": 0.5,
    "wasted": 0,
    "bits_up": 80,
    "bits_per_token": 16.0,
    "forwards": 0,
    "preempted": 0,
    "draft_ms": 0.0,
    "verify_ms": 500.0,
    "waited_ms": 1000.0,
    "alone_from": None,
    "unverified": 3,
    "unread": 1,
    "target_calls": 2,
    "tokens_per_target_call": 2.5,
}

FEDERATED: list[Happened] = [
    (1.0, opened("federated")),
    (1.0, events.MessageSent("open", 90), "a"),
    (1.1, events.MessageReceived("opened", 20), "b"),
    (1.2, events.BlockSent(1, 0, 3, 40, 0.1)),
    (1.3, events.BlockSent(2, 0, 3, 40, 0.1)),  # of the first nobody heard
    (1.5, events.BlockJudged(2, 3, 1, 9, 0.5, 0.25)),
    (1.5, events.RoundDecided(2, 0, 2, {"a": 1.0}, ("b", "c"))),
    (1.5, decided(True)),
    (1.5, decided(False)),
    (2.0, events.BlockJudged(3, 2, 2, 9, 0.25, 0.25)),
    (2.0, events.RoundDecided(3, 2, 2, {"a": 0.5, "c": 0.5}, ("b",))),
    (2.0, decided(True)),
    (2.5, decided(True)),
    (2.5, events.AnswerClosed("stop", *TOTAL)),
]
FEDERATED_NUMBERS = {
    "tokens": 4,
    "ms_per_token": 333.333,
    "bytes_per_token": 32.5,
    "acceptance": {"device": 0.75},
    "rounds": 2,
    "drafted": 5,
    "accepted": 3,
    "resampled": 1,
    "waited_ms": 750.0,
    "missing": {"b": 2, "c": 1},
}


@pytest.mark.parametrize(
    ("mode", "happened", "numbers"),
    [
        ("dragon", DRAGON, DRAGON_NUMBERS),
        ("speculative", SPECULATIVE, SPECULATIVE_NUMBERS),
        ("sprinter", SPRINTER, SPRINTER_NUMBERS),
        ("federated", FEDERATED, FEDERATED_NUMBERS),
    ],
)
def test_numbers_are_what_the_events_say_live_and_from_the_file(
    mode: str, happened: list[Happened], numbers: dict[str, Any], tmp_path: Path
) -> None:
    now = 0.0
    live = AnswerCounts()
    trace = TraceFile(tmp_path / "trace")
    recorder = Recorder(lambda: now, "device", (trace.write,))
    recorder.event(0, start("tiny"))
    for now, event, *peer in happened:  # noqa: B007 (the clock reads it)
        recorder.also(live.take).of("".join(peer)).event(1, event)
    trace.close()
    assert statistics(live, MODES[mode].statistics) == {**COMMON_NUMBERS, **numbers}
    assert not live.resumed, "it goes on in another session"
    assert AnswerCounts.of(read_trace(tmp_path / "trace")) == live


@pytest.mark.parametrize("mode", MODES)
def test_without_a_token_there_is_nothing_to_divide_by(mode: str) -> None:
    counts = AnswerCounts.of([Record(1.0, "device", 1, opened(mode))])
    found = statistics(counts, MODES[mode].statistics)
    assert found["tokens"] == 0
    for name in ("time_to_first_token_ms", "ms_per_token", "total_ms", "bytes_per_token", "rtt_ms"):
        assert found[name] is None


def moved(*steps: tuple[float, float], eta: float = 0.05, alpha: float = 0.02) -> DroppedMass:
    tokens = [events.ThresholdMoved(number, *step) for number, step in enumerate(steps)]
    found = DroppedMass.of(opened("speculative", learning_rate=eta, target=alpha), tokens[0])
    for token in tokens:
        found.take(token)
    return found


def test_a_threshold_out_of_line_is_noticed() -> None:
    eta, alpha = 0.05, 0.02
    betas, dropped = [0.2], [0.5, 0.0, 0.25, 0.125]
    for mass in dropped:
        betas.append(betas[-1] - eta * (mass - alpha))
    steps = list(zip(betas, dropped, strict=False))
    found = moved(*steps)
    assert (found.follows, found.tokens, found.dropped) == (True, 4, sum(dropped))
    assert found.threshold.beta == pytest.approx(betas[-1])
    assert found.dropped <= found.allowed
    steps[2] = (steps[2][0] + 0.01, steps[2][1])
    assert not moved(*steps).follows


def test_a_threshold_that_learns_nothing_has_no_bound() -> None:
    assert moved((0.1, 0.5), (0.1, 0.5), eta=0.0).to_json()["bound"] is None


# What left the device.


def told(
    step: int, token: int, evidence: float | None = None, *files: float, withheld: bool = False
) -> events.TokenDecided:
    row = None, evidence, files
    return events.TokenDecided(step, token, None, None, "own", 0.0, 0.5, *row, withheld)


def counted(*happened: Event) -> AnswerCounts:
    return AnswerCounts.of(Record(1.0, "device", 1, each) for each in (opened("dragon"), *happened))


def draft(step: int, token: int) -> events.Disclosed:
    return events.Disclosed("draft", tokens=1, distributions=1, step=step, token=token)


def test_rejected_drafts_count_as_sent_by_the_device() -> None:
    found = counted(
        events.Disclosed("open", question=30),
        draft(0, 5),
        draft(1, 6),
        told(0, 5, 1.5, 1.0, 0.25),
        told(1, 7, 2.0, 2.0, 0.0),
        draft(1, 7),
        draft(2, 8),  # beyond the end
        events.Disclosed("open", question=30, history=12, tokens=2),
        told(2, 9, withheld=True),
    )
    assert ledger(found) == {
        "question_bytes": 60,
        "history_bytes": 12,
        "tokens_sent": 6,
        "distributions_sent": 4,
        "documents_named": 0,
        "tokens_not_in_answer": 2,
        "tokens_withheld": 1,
        "revealed_bits": None,
        "evidence_bits": 3.5,
        "evidence_of_tokens": 2,
        "evidence_bits_of_files": [3.0, 0.25],
    }
    assert ledger(counted(draft(0, 5), told(0, 5)))["evidence_bits"] is None


def test_tokens_of_rejected_blocks_are_not_in_the_answer() -> None:
    blocks = (
        events.BlockSent(1, 0, 4, 80, 0.1),
        events.BlockSent(2, 4, 4, 80, 0.1),
        events.BlockJudged(1, 4, 3, 7, 0.1, 0.1),
    )
    assert counted(*blocks).unused == 5
    assert counted(*blocks, events.BlockOutrun(2, 3)).unused == 2


def test_the_bytes_of_all_parts_of_a_question_add_up() -> None:
    ends = (events.AnswerClosed("stop", 1, 20, None, 300, 4000), events.AnswerClosed("length", 5))
    answer = AnswerCounts.of(Record(1.0, "device", 1, each) for each in ends)
    assert answer.closed == events.AnswerClosed("length", 6, 20, None, 300, 4000)
