"""Summing up traces: hand-made ones to the number, broken ones by their line, real ones by sum."""

import asyncio
import io
import json
from typing import Any

import pytest

from dragonrt.link.memory import memory_streams
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.modes.dragon import Answer, Asking
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import TraceFile
from dragonrt.runtime.trace_summary import Summary, TraceError, read_events, summarize
from dragonrt.sampling.samplers import Sampler
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide


def event(t: float, session: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"t": t, "side": "device", "session": session, "event": kind, **fields}


def decide(t: float, session: int, device: bool | None, cloud: bool | None, cause: str) -> Any:
    fields = {"step": 0, "token": 1, "waited": 0.1, "cause": cause}
    return event(t, session, "decide", device=device, cloud=cloud, **fields)


ANSWER = [
    event(0.0, 0, "start", version="1", model="tiny"),
    event(0.5, 0, "send", message="ping", bytes=10),
    event(0.6, 0, "receive", message="pong", bytes=11),
    event(0.6, 0, "probe", rtt=0.1),
    event(0.7, 0, "probe", bandwidth=1e6),
    event(1.0, 1, "open", accepted=0, seed=1, rule="coupled", aggregator="both", codec="x"),
    event(1.0, 1, "send", message="open", bytes=100),
    event(1.1, 1, "receive", message="opened", bytes=20),
    event(1.2, 1, "ready", load=0.1, prefill=0.05, prompt_tokens=9),
    event(1.3, 1, "decode", step=0, tokens=2, seconds=0.03),
    event(1.3, 1, "send", message="draft", step=0, bytes=50),
    event(1.4, 1, "receive", message="draft", step=0, bytes=60),
    decide(1.5, 1, True, False, "other"),
    event(1.5, 1, "rollback", step=0, dropped=3),
    event(1.5, 1, "preempt", step=3),
    decide(1.6, 1, True, True, "own"),
    event(1.6, 1, "switch", step=2, to="cloud", difference=0.1),
    decide(1.9, 1, None, True, "target"),
    event(1.9, 1, "close", finish="stop"),
    event(1.9, 1, "send", message="close", bytes=5),
]


def test_an_answers_numbers_are_what_its_events_say() -> None:
    summary = summarize(ANSWER)
    (answer,) = summary.answers
    report = answer.to_json()
    assert (summary.side, summary.model, answer.session, answer.finish) == (
        "device",
        "tiny",
        1,
        "stop",
    )
    assert report["time_to_first_token_ms"] == 500.0
    assert report["ms_per_token"] == 200.0
    assert report["acceptance"] == {"device": 1.0, "cloud": 0.5}, "one own draft was not there"
    assert report["waited_ms"] == {"other": 100.0, "own": 100.0, "target": 100.0}
    assert (report["bytes_sent"], report["bytes_received"]) == (155, 80)
    assert report["bytes_per_token"] == round(235 / 3, 1)
    assert (report["forwards"], report["drafted"], report["ms_per_forward"]) == (1, 2, 30.0)
    assert (report["rollbacks"], report["dropped"], report["preemptions"]) == (1, 3, 1)
    assert (report["switches"], report["divergences"], report["losses"]) == (1, 0, 0)
    assert (report["load_ms"], report["prefill_ms"]) == (100.0, 50.0)


def test_probes_and_handshakes_belong_to_no_answer() -> None:
    report = summarize(ANSWER).to_json()
    assert report["other_bytes"] == {"sent": 10, "received": 11}
    assert report["probes"] == {
        "samples": 1,
        "rtt_ms": 100.0,
        "rtt_ms_range": [100.0, 100.0],
        "bandwidth_bits": 1000000,
    }


def test_the_total_is_over_all_answers() -> None:
    later = [{**line, "t": line["t"] + 10} for line in ANSWER[5:]]
    summary = summarize([*ANSWER, *later])
    assert len(summary.answers) == 2, "a number that is opened again is another answer"
    total = summary.total
    assert (total.tokens, total.intervals, total.bytes_sent) == (6, 4, 310)
    assert total.to_json()["ms_per_token"] == 200.0
    assert total.first_token_s == pytest.approx([0.5, 0.5])


def test_a_clouds_devices_are_told_apart() -> None:
    events = [
        {**line, "side": "cloud", "peer": peer} for line in ANSWER[5:] for peer in ("a:1", "b:2")
    ]
    summary = summarize(events)
    assert [answer.peer for answer in summary.answers] == ["a:1", "b:2"]
    assert [answer.costs.tokens for answer in summary.answers] == [3, 3]


def test_a_cloud_hears_the_open_before_it_opens() -> None:
    events = [
        event(1.0, 1, "receive", message="open", bytes=100),
        event(1.1, 1, "open", accepted=0),
        decide(1.5, 1, True, True, "own"),
    ]
    summary = summarize(events + events)
    assert [answer.costs.bytes_received for answer in summary.answers] == [100, 100]
    assert summary.answers[0].to_json()["time_to_first_token_ms"] == 500.0


def test_a_resumed_answer_has_no_first_token() -> None:
    events = [event(1.0, 1, "open", accepted=4), decide(2.0, 1, True, True, "own")]
    (answer,) = summarize(events).answers
    assert answer.resumed
    assert answer.to_json()["time_to_first_token_ms"] is None


def test_answers_without_a_cloud_are_counted_one_by_one() -> None:
    alone = [event(1.0, 0, "open", accepted=0), event(1.0, 0, "alone", step=0)]
    alone += [decide(1.5, 0, True, None, "own"), event(1.6, 0, "close", finish="stop")]
    summary = summarize(alone + alone)
    assert [answer.costs.losses for answer in summary.answers] == [1, 1]
    assert summary.total.to_json()["acceptance"] == {"device": None, "cloud": None}


def test_a_trace_without_answers_has_a_summary() -> None:
    report = summarize(ANSWER[:1]).to_json()
    assert report["total"]["tokens"] == 0
    assert report["total"]["ms_per_token"] is None
    assert report["probes"]["rtt_ms"] is None


def as_lines(events: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(line) + "\n" for line in events]


@pytest.mark.parametrize("kept", [1, 10, 30])
def test_a_last_line_that_was_cut_off_is_left_out(kept: int) -> None:
    lines = as_lines(ANSWER)
    assert read_events([*lines[:-1], lines[-1][:kept]], "trace") == ANSWER[:-1]
    assert read_events([*lines[:-1], lines[-1].rstrip("\n")], "trace") == ANSWER


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{\n", "line 3 is not JSON"),
        ("[1]\n", "line 3 is not a trace event: it is not an object"),
        ('{"t":1,"side":"device","session":1}\n', "line 3 .*: event is missing"),
        ('{"t":"x","side":"device","session":1,"event":"a"}\n', "line 3 .*: t is missing or of"),
        ('{"t":1,"side":"moon","session":1,"event":"a"}\n', "line 3 .*: side is neither"),
        ('{"t":1,"side":"device","session":1,"event":"decide"}\n', "line 3 .*: cause is missing"),
        ('{"t":1,"side":"device","session":1,"event":["decide"]}\n', "line 3 .*: event is missing"),
        ('{"t":1,"side":"device","session":1,"event":"rollback","dropped":true}\n', "dropped"),
    ],
)
def test_a_broken_line_is_named(line: str, said: str) -> None:
    lines = as_lines(ANSWER)
    with pytest.raises(TraceError, match=f"^some.jsonl .*{said}"):
        read_events([*lines[:2], line, *lines[2:]], "some.jsonl")


@pytest.mark.parametrize("lines", [[], ["{"], ["# a text\n"]])
def test_what_is_no_trace_is_refused(lines: list[str]) -> None:
    with pytest.raises(TraceError, match="is this a trace"):
        read_events(lines, "some.jsonl")


def test_unknown_events_and_fields_are_skipped() -> None:
    known = [ANSWER[0], event(0.1, 3, "novelty", data=1), *ANSWER[1:]]
    assert summarize(known).to_json() == summarize(ANSWER).to_json()


async def ask_traced(plan: Plan) -> tuple[Answer, Summary, Summary]:
    """One simulated answer, and what the traces of both sides say of it."""
    clock = asyncio.get_running_loop().time
    files = io.StringIO(), io.StringIO()
    script = Script(seed=3)
    device, cloud = (
        SimulatedSide(side, lambda question: script, trace=TraceFile(file, clock, side=side))
        for side, file in zip(("device", "cloud"), files, strict=True)
    )
    server = SimulatedCloud(cloud)

    async def dial() -> Peer:
        ours, theirs = memory_streams()
        server.accept(theirs)
        return Peer(ours, device.connection(), device.trace)

    connector = Connector(dial)
    await connector.connect()
    keeper = asyncio.create_task(connector.run())
    asking = Asking(
        device, connector, plan, on_decision=lambda decision: None, on_notice=lambda text: None
    )
    answer = await asking.ask("?")
    await asyncio.sleep(1)
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)
    await server.wait_idle()
    lines = (file.getvalue().splitlines(keepends=True) for file in files)
    ours, theirs = (summarize(read_events(each, "trace")) for each in lines)
    return answer, ours, theirs


@pytest.mark.parametrize("placement", [Placement.BOTH, Placement.GREEDY, Placement.SYNC])
def test_both_sides_traces_agree_with_each_other_and_with_the_answer(placement: Placement) -> None:
    plan = Plan(seed=1, sampler=Sampler(0.7), placement=placement, max_tokens=24, stop_tokens=(0,))
    answer, device, cloud = run(ask_traced(plan))
    (ours,), (theirs,) = device.answers, cloud.answers
    assert ours.costs.tokens == theirs.costs.tokens == len(answer.tokens)
    assert ours.costs.bytes_sent == theirs.costs.bytes_received > 0
    assert ours.costs.bytes_received == theirs.costs.bytes_sent > 0
    assert ours.costs.forwards == answer.counts.forwards
    assert ours.costs.rollbacks == answer.counts.rollbacks
    assert sum(ours.costs.waited_s.values()) == pytest.approx(
        sum(answer.counts.waited_s.values()), abs=1e-4
    )
    assert ours.finish == answer.finish.value
    assert ours.costs.first_token_s == pytest.approx(
        [answer.decisions[0].time_s - answer.asked_s], abs=1e-5
    )
    assert device.rtts_s, "probes are in the trace"


def test_what_workers_sessions_took_belongs_to_the_coordinators_answer() -> None:
    def part(t: float, peer: str, kind: str, size: int, message: str) -> dict[str, Any]:
        return event(t, 1, kind, peer=peer, message=message, bytes=size)

    summary = summarize(
        [
            event(0.0, 0, "start", version="1", model="tiny"),
            event(1.0, 0, "open", accepted=0),
            part(1.0, "a:1", "send", 100, "openblocks"),
            part(1.0, "b:2", "send", 110, "openblocks"),
            event(1.1, 0, "send", peer="a:1", message="ping", bytes=7),
            part(1.5, "a:1", "receive", 40, "upload"),
            part(1.6, "b:2", "receive", 50, "upload"),
            event(1.6, 0, "verdict", tokens=3, accepted=1, verify=0.25, round=1),
            event(1.6, 0, "round", round=1, weights={"a:1": 1.0}, missing=["b:2"]),
            decide(1.6, 0, True, None, "target"),
            decide(1.6, 0, False, None, "target"),
            event(1.7, 0, "close", finish="stop"),
            part(1.7, "b:2", "send", 5, "close"),
        ]
    )
    (answer,) = summary.answers
    assert (answer.peer, answer.session, answer.finish) == (None, 0, "stop")
    assert (answer.costs.bytes_sent, answer.costs.bytes_received) == (215, 90)
    assert (answer.costs.tokens, answer.costs.accepted["device"]) == (2, 1)
    assert answer.costs.absences == 1
    assert summary.idle_sent == 7


@pytest.mark.parametrize(("approximate", "acceptance"), [(True, 0.75), (False, 0.5)])
def test_what_no_cloud_verified_stands_in_approximate_answers_only(
    approximate: bool, acceptance: float
) -> None:
    (answer,) = summarize(
        [
            event(1.0, 1, "open", accepted=0, approximate=approximate),
            decide(1.1, 1, None, None, "own"),
            decide(1.2, 1, None, None, "own"),
            event(1.3, 1, "verdict", tokens=1, accepted=1, verify=0.25, round=1),
            decide(1.3, 1, True, None, "target"),
            event(1.4, 1, "verdict", tokens=1, accepted=0, verify=0.25, round=2),
            decide(1.4, 1, False, None, "target"),
        ]
    ).answers
    assert answer.to_json()["acceptance"]["device"] == acceptance
