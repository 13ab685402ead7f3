"""Traces as timelines, pictures and files for trace viewers."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragonrt.errors import DragonError
from dragonrt.experiments import pipeline
from dragonrt.experiments.chrome_trace import write_chrome_trace
from dragonrt.experiments.framework import Settings
from dragonrt.experiments.pipeline_picture import draw_pipeline
from dragonrt.experiments.statistics import Row
from dragonrt.experiments.timeline import Event, TimelineError, aligned, flights, timeline


def event(side: str, t: float, kind: str, session: int = 1, **fields: Any) -> Event:
    peer = {"peer": "10.0.0.2:5000"} if side == "cloud" and kind != "start" else {}
    return {"t": t, "side": side, **peer, "session": session, "event": kind, **fields}


def trace(side: str, shift_s: float = 0.0, clock: str = "one", seed: int = 7) -> list[Event]:
    """Three tokens over 50 ms each way: the device's second draft is rejected."""
    plan: dict[str, Any] = {"accepted": 0, "seed": seed, "rule": "coupled", "aggregator": "both"}
    decided: dict[str, Any] = {"cause": "other", "waited": 0.1}

    def of(t: float, kind: str, session: int = 1, **fields: Any) -> Event:
        return event(side, round(t + shift_s, 6), kind, session, **fields)

    def messages(kind: str, sent: list[float], name: str = "draft") -> list[Event]:
        return [
            of(t, kind, message=name, bytes=60, step=step % 3) for step, t in enumerate(sent, 0)
        ]

    device_sent, cloud_sent = [10.0, 10.1, 10.2], [10.02, 10.12, 10.22]
    own = device_sent if side == "device" else cloud_sent
    theirs = cloud_sent if side == "device" else device_sent
    start = event(side, own[0] + shift_s - 1.0, "start", 0, model="m", version="1", clock=clock)
    events = [
        of(9.9 if side == "device" else 9.95, "open", **plan),
        *messages("send", own),
        *messages("receive", [t + 0.05 for t in theirs]),
        *(of(t, "decode", step=step, tokens=1, seconds=0.05) for step, t in enumerate(own)),
        of(10.3, "decide", step=0, token=5, device=True, cloud=True, **decided),
        of(10.4, "decide", step=1, token=6, device=False, cloud=True, **decided),
        of(10.4, "rollback", step=1, dropped=2),
        of(10.4, "preempt", step=3),
        of(10.42, "stopped", step=3, seconds=0.03),
        of(10.47, "decode", step=2, tokens=1, seconds=0.05),
        of(10.5, "decide", step=2, token=7, device=True, cloud=True, **decided),
        of(10.6, "close", finish="length"),
    ]
    if side == "device":
        events += [
            of(9.95, "probe", 0, rtt=0.1),
            of(10.3, "estimate", step=1, difference=-0.02, rtt=0.1, device=0.5, cloud=0.5),
            of(10.4, "switch", step=2, to="cloud", difference=0.01),
        ]
    return [start, *sorted(events, key=lambda each: each["t"])]


def test_the_draft_that_was_compared_is_the_last_one_before_the_decision() -> None:
    line = timeline(aligned([trace("device"), trace("cloud")]))
    found = [(one.step, one.accepted) for one in line.tracks["device"].forwards]
    assert found == [(0, True), (1, False), (2, None), (2, True)]
    first = line.tracks["device"].forwards[0]
    assert (first.start_s, first.end_s) == pytest.approx((0.05, 0.1))
    assert line.tracks["device"].stopped[0] == pytest.approx((0.49, 0.52))
    assert [one.step for one in line.decisions] == [0, 1, 2]
    assert line.title == "coupled, both"


def test_every_message_has_both_ends() -> None:
    line = timeline(aligned([trace("cloud"), trace("device")]))
    assert len(line.flights) == 6
    assert all(
        flight.end_s == pytest.approx(flight.start_s + 0.05)
        for flight in line.flights
        if flight.end_s is not None
    )
    assert {flight.sender for flight in line.flights} == {"device", "cloud"}
    assert {flight.peer for flight in line.flights} == {"10.0.0.2:5000"}


def test_a_verdict_never_arrives_as_the_one_of_another_round() -> None:
    """The first was received before its sender had noted it."""
    sent = [
        event("cloud", t, "send", message="verdict", round=n, bytes=9) for n, t in ((1, 2), (2, 3))
    ]
    received = [
        event("device", t, "receive", message="verdict", round=n, bytes=9)
        for n, t in ((1, 1.9), (2, 3.1))
    ]
    found = flights({"device": received, "cloud": sent})
    assert [(flight.start_s, flight.end_s) for flight in found] == [(2, None), (3, 3.1)]


def test_one_trace_alone_shows_its_own_side() -> None:
    line = timeline(aligned([trace("device")]))
    assert list(line.tracks) == ["device"]
    assert [flight.end_s for flight in line.flights] == [None] * 3
    assert line.rtts[0] == pytest.approx((0.05, 0.1))
    assert [one.difference_s for one in line.estimates] == [-0.02]
    ((moved_s, to),) = line.switches
    assert moved_s == pytest.approx(0.5)
    assert to == "cloud"


def test_clocks_of_two_hosts_are_brought_together_by_the_messages() -> None:
    together = timeline(aligned([trace("device"), trace("cloud")]))
    apart = timeline(aligned([trace("device"), trace("cloud", 1234.5, "another")]))
    for one, other in zip(together.flights, apart.flights, strict=True):
        assert one.start_s == pytest.approx(other.start_s)
        assert one.end_s == pytest.approx(other.end_s)


def test_a_common_clock_is_believed() -> None:
    """A link that is slower in one direction must not look even."""
    late = timeline(aligned([trace("device"), trace("cloud", 0.02)]))
    needed = {
        flight.sender: flight.end_s - flight.start_s
        for flight in late.flights
        if flight.end_s is not None
    }
    assert needed == {"device": pytest.approx(0.07), "cloud": pytest.approx(0.03)}


def test_the_answer_of_a_session_is_found_on_both_sides() -> None:
    before = [{**each, "t": each["t"] - 20} for each in trace("cloud", seed=3)]
    cloud = [*before, *trace("cloud")[1:]]
    line = timeline(aligned([trace("device"), cloud]))
    assert line.tracks["cloud"].decisions[0].time_s == pytest.approx(0.4)
    with pytest.raises(TimelineError, match="no answer of session 2"):
        timeline(aligned([trace("device")]), 2)


def test_traces_that_do_not_belong_together_are_one_line() -> None:
    with pytest.raises(TimelineError, match="same side"):
        aligned([trace("device"), trace("device")])
    with pytest.raises(TimelineError, match="in one of the two traces only"):
        timeline(aligned([trace("device"), trace("cloud", seed=8)]))
    with pytest.raises(TimelineError, match="no messages in common"):
        aligned([trace("device"), trace("cloud", clock="another")[:2]])
    with pytest.raises(TimelineError, match="no answer with tokens"):
        timeline(aligned([trace("device")[:3]]))


@pytest.mark.slow
def test_the_picture_is_drawn_from_one_trace_or_two(tmp_path: Path) -> None:
    for number, traces in enumerate(([trace("cloud")], [trace("device"), trace("cloud")])):
        path = tmp_path / f"{number}.png"
        draw_pipeline(timeline(aligned(traces)), path)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_chrome_trace_has_slices_arrows_and_counters(tmp_path: Path) -> None:
    by_side = aligned([trace("device"), trace("cloud")])
    write_chrome_trace(by_side, tmp_path / "trace.json")
    records = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    for record in records:
        assert {"ph", "pid", "name"} <= set(record)
        assert record["ph"] == "M" or record["ts"] > 0
        assert record["ph"] != "X" or record["dur"] > 0
    named = {one["pid"]: one["args"]["name"] for one in records if one["name"] == "process_name"}
    assert sorted(named.values()) == ["cloud", "cloud, for 10.0.0.2:5000", "device"]
    decoded = [one for one in records if one["name"].startswith("decode ")]
    assert len(decoded) == 8
    assert all(one["dur"] == pytest.approx(5e4) for one in decoded)
    (stopped, _) = (one for one in records if one["name"] == "preempted 3")
    assert stopped["dur"] == pytest.approx(3e4)
    assert {one["name"] for one in records if one["ph"] == "C"} >= {
        "round trip (s)",
        "ΔZ (s)",
        "acceptance, device",
    }
    assert {"token 1", "roll back to 1", "preempt 3", "to cloud"} <= {
        one["name"] for one in records if one["ph"] == "i"
    }
    slices = {(one["pid"], one["tid"], one["ts"]) for one in records if one["ph"] == "X"}
    starts, ends = ([one for one in records if one["ph"] == phase] for phase in "sf")
    assert len(starts) == len(ends) == len(list(flights(by_side)))
    assert all((one["pid"], one["tid"], one["ts"]) in slices for one in starts + ends)
    with pytest.raises(DragonError, match="cannot write"):
        write_chrome_trace(by_side, tmp_path / "missing" / "trace.json")


FIELDS = {
    "X": {"cat", "ts", "dur", "args"},
    "i": {"cat", "ts", "s", "args"},
    "C": {"ts", "args"},
    "M": {"args"},
    "s": {"cat", "ts", "id"},
    "f": {"cat", "ts", "id", "bp"},
}
"""What each phase of the Trace Event Format has, as used here, beside ph, name, pid and tid."""


def check_trace_event(record: dict[str, Any]) -> None:
    """The fields of one event, their types and the values that the format allows."""
    phase = record["ph"]
    assert set(record) == {"ph", "name", "pid", "tid"} | FIELDS[phase], record
    assert isinstance(record["name"], str)
    assert record["name"]
    for whole in {"pid", "tid", "ts", "dur", "id"} & set(record):
        assert type(record[whole]) is int, (whole, record)
    assert record.get("dur", 0) >= 0
    assert record.get("s", "t") in ("g", "p", "t")
    assert record.get("bp", "e") == "e"
    if phase == "M":
        assert record["name"] in ("process_name", "thread_name")
        assert list(record["args"]) == ["name"]
        assert isinstance(record["args"]["name"], str)
    if phase == "C":
        assert record["args"]
        assert all(type(value) in (int, float) for value in record["args"].values())


def check_nesting(slices: list[dict[str, Any]]) -> None:
    """Slices of one thread lie within or beside one another."""
    open_until: list[int] = []
    for one in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):
        while open_until and open_until[-1] <= one["ts"]:
            open_until.pop()
        end = one["ts"] + one["dur"]
        assert not open_until or end <= open_until[-1], one
        open_until.append(end)


def test_the_chrome_trace_keeps_to_the_trace_event_format(
    measured: list[Row], tmp_path: Path
) -> None:
    recorded = [
        {name: value for name, value in row.items() if value is not None and name != "way"}
        for row in measured
        if row["way"] == pipeline.WAYS[0].name
    ]
    simulated = [[one for one in recorded if one["side"] == side] for side in ("device", "cloud")]
    for traces in (simulated, [trace("device"), trace("cloud")], [trace("cloud")]):
        write_chrome_trace(aligned(traces), tmp_path / "trace.json")
        written = json.loads((tmp_path / "trace.json").read_text())
        assert set(written) == {"traceEvents", "displayTimeUnit"}
        assert written["displayTimeUnit"] in ("ms", "ns")
        records = written["traceEvents"]
        threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
        arrows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
        named = set()
        for record in records:
            check_trace_event(record)
            thread = (record["pid"], record["tid"])
            if record["ph"] == "M":
                named.add((record["name"], *thread))
            elif record["ph"] == "X":
                threads.setdefault(thread, []).append(record)
            elif record["ph"] in "sf":
                arrow = (record["cat"], record["name"], record["id"])
                arrows.setdefault(arrow, []).append(record)
        for pid, tid in {(one["pid"], one["tid"]) for one in records}:
            assert ("process_name", pid, 0) in named
            assert ("thread_name", pid, tid) in named or tid == 0
        for slices in threads.values():
            check_nesting(slices)
        for begins, ends in arrows.values():
            assert (begins["ph"], ends["ph"]) == ("s", "f")
            assert begins["ts"] <= ends["ts"]
        assert len(arrows) == sum(
            flight.end_s is not None for flight in flights(aligned(traces), check=True)
        )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    settings = Settings(True, False, 1, 0, tmp_path_factory.mktemp("pipeline"))
    return pipeline.run(settings, lambda done, total: None)


def test_a_simulated_pair_shows_what_the_runtime_did(measured: list[Row]) -> None:
    summary = pipeline.summarise(measured)
    assert list(summary) == [way.name for way in pipeline.WAYS]
    floor_ms = 1000 * max(pipeline.PACE.forward_s.values())
    synchronous_ms = 1000 * pipeline.PACE.rtt_s + floor_ms
    for way in summary.values():
        assert way["tokens"] == pipeline.TOKENS_QUICK
        assert floor_ms <= way["ms_per_token_after_the_first"] < synchronous_ms
    greedy, leaderless = summary.values()
    assert greedy["switches"] > 0
    assert leaderless["switches"] == 0


def test_its_messages_take_what_the_link_takes(measured: list[Row]) -> None:
    for line in pipeline._timelines(measured).values():
        needed = [
            flight.end_s - flight.start_s for flight in line.flights if flight.end_s is not None
        ]
        shortest = pipeline.PACE.rtt_s / 2
        longest = shortest * (1 + pipeline.PACE.jitter)
        assert len(needed) > 50
        assert all(shortest - 1e-6 <= each <= longest + 1e-6 for each in needed)


@pytest.mark.slow
def test_every_way_has_its_picture(measured: list[Row], tmp_path: Path) -> None:
    pipeline.plot(measured, tmp_path / "pipeline.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pipeline-leaderless.png",
        "pipeline.png",
    ]
