"""Both sides' traces of one answer, made by hand."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.events import Event, Record

MakeTrace = Callable[..., list[Record]]
DEVICE = "10.0.0.2:5000"


def make_trace(side: Side, shift_s: float = 0.0, clock: str = "one", seed: int = 7) -> list[Record]:
    """Three tokens over 50 ms each way: the device's second draft is rejected."""
    sent: dict[Side, list[float]] = {"device": [10.0, 10.1, 10.2], "cloud": [10.02, 10.12, 10.22]}
    own, theirs = sent[side], sent["cloud" if side == "device" else "device"]
    settings = {"seed": seed, "rule": "coupled", "aggregator": "both"}
    happened: list[tuple[float, Event]] = [
        (9.9 if side == "device" else 9.95, events.AnswerOpened("dragon", 0, settings)),
        (9.94 if side == "device" else 9.96, events.SideReady(0.01, 0.01, 9)),
        *((t, events.MessageSent("draft", 60, step)) for step, t in enumerate(own)),
        *((t + 0.05, events.MessageReceived("draft", 60, step)) for step, t in enumerate(theirs)),
        *((t, events.ForwardDone(step, 1, 0.05)) for step, t in enumerate(own)),
        *((t, events.Drafted(step)) for step, t in enumerate(own)),
        (10.3, events.TokenDecided(0, 5, True, True, "other", 0.1, 0.5)),
        (10.4, events.TokenDecided(1, 6, False, True, "other", 0.1, 0.5)),
        (10.4, events.RolledBack(1, 2)),
        (10.4, events.ForwardPreempted(3)),
        (10.42, events.ForwardStopped(3, 0.03)),
        (10.47, events.ForwardDone(2, 1, 0.05)),
        (10.5, events.TokenDecided(2, 7, True, True, "other", 0.1, 0.5)),
        (10.6, events.AnswerClosed("length")),
    ]
    if side == "device":
        happened += [
            (10.3, events.LatencyEstimated(1, -0.02, 0.1, 0.5, 0.5, 0.03, 0.02)),
            (10.4, events.AggregatorSwitched(2, "cloud", 0.01)),
        ]
    peer = DEVICE if side == "cloud" else ""
    records = [Record(t, side, 1, event, peer) for t, event in happened]
    if side == "device":
        records.append(Record(9.95, side, 0, events.LinkProbed(rtt=0.1)))
    first = Record(own[0] - 1.0, side, 0, events.TraceStarted(2, "1", "m", clock))
    records = [first, *sorted(records, key=lambda each: each.t)]
    return [replace(each, t=round(each.t + shift_s, 6)) for each in records]


@pytest.fixture
def trace() -> MakeTrace:
    return make_trace
