"""Summing up traces: hand-made ones to the number, each answer with what belongs to it."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.events import Event, Record
from dragonrt.traces.statistics import summary

STARTED = events.TraceStarted(2, "1", "tiny", "a clock")


def on(t: float, session: int, event: Event, side: Side = "device", peer: str = "") -> Record:
    return Record(t, side, session, event, peer)


def opened(accepted: int = 0, mode: str = "dragon", **settings: Any) -> events.AnswerOpened:
    return events.AnswerOpened(mode, accepted, {"seed": 1, **settings}, mode != "sprinter")


def decided(device: bool | None, cloud: bool | None, cause: events.Cause) -> events.TokenDecided:
    return events.TokenDecided(0, 1, device, cloud, cause, 0.1, 0.5)


def judged(number: int, tokens: int, accepted: int) -> events.BlockJudged:
    return events.BlockJudged(number, tokens, accepted, 7, 0.1, 0.25)


def summary_of(*records: Record) -> dict[str, Any]:
    return summary([on(0.0, 0, STARTED, records[0].side), *records])


ANSWER = [
    on(1.0, 1, opened()),
    on(1.0, 1, events.MessageSent("open", 100)),
    on(1.1, 1, events.MessageReceived("opened", 20)),
    on(1.2, 1, events.SideReady(0.1, 0.05, 9)),
    on(1.3, 1, events.ForwardDone(0, 2, 0.03)),
    on(1.3, 1, events.MessageSent("draft", 50, 0)),
    on(1.4, 1, events.MessageReceived("draft", 60, 0)),
    on(1.5, 1, decided(True, False, "other")),
    on(1.5, 1, events.RolledBack(0, 3)),
    on(1.5, 1, events.ForwardPreempted(3)),
    on(1.6, 1, decided(True, True, "own")),
    on(1.6, 1, events.AggregatorSwitched(2, "cloud", 0.1)),
    on(1.9, 1, decided(None, True, "target")),
    on(1.9, 1, events.AnswerClosed("stop")),
    on(1.9, 1, events.MessageSent("close", 5)),
]
TRACE = [
    on(0.0, 0, STARTED),
    on(0.5, 0, events.MessageSent("ping", 10)),
    on(0.6, 0, events.MessageReceived("pong", 11)),
    on(0.6, 0, events.LinkProbed(rtt=0.1)),
    on(0.7, 0, events.LinkProbed(bandwidth=1e6)),
    *ANSWER,
]


def test_an_answers_numbers_are_what_its_events_say() -> None:
    report = summary(TRACE)
    (answer,) = report["answers"]
    assert (report["side"], report["model"]) == ("device", "tiny")
    expected: dict[str, Any] = {
        "session": 1,
        "finish": "stop",
        "resumed": False,
        "load_ms": 100.0,
        "prefill_ms": 50.0,
        "tokens": 3,
        "time_to_first_token_ms": 500.0,
        "ms_per_token": 200.0,
        "acceptance": {"device": 1.0, "cloud": 0.5},  # one own draft was not there
        "waited_ms": {"other": 100.0, "own": 100.0, "target": 100.0},
        "bytes_sent": 155,
        "bytes_received": 80,
        "bytes_per_token": round(235 / 3, 1),
        "forwards": 1,
        "drafted": 2,
        "ms_per_forward": 30.0,
        "rollbacks": 1,
        "dropped": 3,
        "preemptions": 1,
        "switches": 1,
        "conformal": None,
    }
    zeros = "blocks block_tokens bits verified resampled divergences losses absences"
    unknown = "tokens_per_block bits_per_token resampling_rate ms_per_verdict"
    expected |= dict.fromkeys(zeros.split(), 0) | dict.fromkeys(unknown.split())
    assert answer.pop("ledger")["tokens_sent"] == 0
    assert answer == expected


def test_probes_and_handshakes_belong_to_no_answer() -> None:
    report = summary(TRACE)
    assert report["other_bytes"] == {"sent": 10, "received": 11}
    assert report["probes"] == {
        "samples": 1,
        "rtt_ms": 100.0,
        "rtt_ms_range": [100.0, 100.0],
        "bandwidth_bits": 1000000,
    }


def test_the_total_is_over_all_answers() -> None:
    report = summary([*TRACE, *(replace(each, t=each.t + 10) for each in ANSWER)])
    total = report["total"]
    assert (total["tokens"], total["bytes_sent"]) == (6, 310)
    assert (total["ms_per_token"], total["time_to_first_token_ms"]) == (200.0, 500.0)
    assert [each["tokens"] for each in report["answers"]] == [3, 3], "a number opened again"


def test_a_clouds_devices_are_told_apart() -> None:
    both = [replace(each, side="cloud", peer=peer) for each in ANSWER for peer in ("a:1", "b:2")]
    answers = summary_of(*both)["answers"]
    assert [(answer["peer"], answer["tokens"]) for answer in answers] == [("a:1", 3), ("b:2", 3)]


def test_a_cloud_hears_the_open_before_it_opens() -> None:
    heard = [
        on(1.0, 1, events.MessageReceived("open", 100), "cloud"),
        on(1.1, 1, opened(), "cloud"),
        on(1.5, 1, decided(True, True, "own"), "cloud"),
    ]
    answers = summary_of(*heard, *heard)["answers"]
    assert [answer["bytes_received"] for answer in answers] == [100, 100]
    assert answers[0]["time_to_first_token_ms"] == 500.0


def test_a_resumed_answer_has_no_first_token() -> None:
    resumed = on(1.0, 1, opened(accepted=4)), on(2.0, 1, decided(True, True, "own"))
    (report,) = summary_of(*resumed)["answers"]
    assert (report["resumed"], report["time_to_first_token_ms"]) == (True, None)


def test_answers_without_a_cloud_are_counted_one_by_one() -> None:
    alone = [
        on(1.0, 0, opened()),
        on(1.0, 0, events.WentAlone(0)),
        on(1.5, 0, decided(True, None, "own")),
        on(1.6, 0, events.AnswerClosed("stop")),
    ]
    report = summary_of(*alone, *alone)
    assert [answer["losses"] for answer in report["answers"]] == [1, 1]
    assert report["total"]["acceptance"] == {"device": None, "cloud": None}


def test_a_trace_without_answers_has_a_summary() -> None:
    report = summary(TRACE[:1])
    assert (report["answers"], report["total"]["tokens"]) == ([], 0)
    assert (report["total"]["ms_per_token"], report["probes"]["rtt_ms"]) == (None, None)


def test_workers_sessions_count_to_the_coordinators_answer() -> None:
    report = summary_of(
        on(1.0, 0, opened(mode="federated")),
        on(1.0, 1, events.MessageSent("open", 100), peer="a:1"),
        on(1.0, 1, events.MessageSent("open", 110), peer="b:2"),
        on(1.1, 0, events.MessageSent("ping", 7), peer="a:1"),
        on(1.5, 1, events.MessageReceived("upload", 40, round=1), peer="a:1"),
        on(1.6, 1, events.MessageReceived("upload", 50, round=1), peer="b:2"),
        on(1.6, 0, judged(1, 3, 1)),
        on(1.6, 0, events.RoundDecided(1, 0, 2, {"a:1": 1.0}, ("b:2",))),
        on(1.6, 0, decided(True, None, "target")),
        on(1.6, 0, decided(False, None, "target")),
        on(1.7, 0, events.AnswerClosed("stop")),
        on(1.7, 1, events.MessageSent("close", 5), peer="b:2"),
    )
    (answer,) = report["answers"]
    assert ("peer" in answer, answer["session"], answer["finish"]) == (False, 0, "stop")
    assert (answer["bytes_sent"], answer["bytes_received"], answer["tokens"]) == (215, 90, 2)
    assert (answer["acceptance"]["device"], answer["absences"]) == (0.5, 1)
    assert report["other_bytes"]["sent"] == 7


def test_dropped_mass_adds_up_and_so_does_what_is_allowed() -> None:
    def answer(session: int, dropped: float, beta: float = 0.1) -> list[Record]:
        settings = opened(mode="speculative", learning_rate=0.5, target=0.25, horizon=None)
        moved = events.ThresholdMoved(0, beta, dropped)
        return [on(1.0, session, settings), on(2.0, session, moved)]

    constant = (0.1 + 1 + 0.5 * 0.25) / 0.5
    assert summary_of(*answer(1, 0.5), *answer(2, 0.5))["total"]["conformal"] == {
        "tokens": 2,
        "average_dropped": 0.5,
        "beta": pytest.approx(0.1 - 0.5 * 0.25),
        "bound": pytest.approx(0.25 + constant),
        "says_nothing": True,
        "follows": True,
    }
    one_run = summary_of(*answer(1, 0.75), *answer(2, 0.25, beta=0.1 - 0.5 * 0.5))
    bound = one_run["total"]["conformal"]["bound"]
    assert bound == pytest.approx(0.25 + constant / 2), "the second goes on where the first ended"
