"""What a trace says in numbers: per answer and in total."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.answers import TracedAnswer, of_type, split
from dragonrt.traces.counts import Counts, median_ms, milliseconds
from dragonrt.traces.events import Record


@dataclass(slots=True)
class Summary:
    """One side's trace. Probes are the samples of the round trip (s) and bandwidth (bit/s).

    `idle_sent` and `idle_received` are bytes that belong to no answer: handshakes and probes.
    """

    side: Side
    model: str
    answers: list[TracedAnswer]
    rtts_s: list[float] = field(default_factory=list)
    bandwidths: list[float] = field(default_factory=list)
    idle_sent: int = 0
    idle_received: int = 0

    @property
    def total(self) -> Counts:
        total = Counts()
        for answer in self.answers:
            total.add(answer.found.counts)
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the object that `dragonrt trace --json` prints for a file."""
        rtts_s = self.rtts_s
        return {
            "side": self.side,
            "model": self.model,
            "answers": [answer.to_json() for answer in self.answers],
            "total": self.total.to_json(),
            "other_bytes": {"sent": self.idle_sent, "received": self.idle_received},
            "probes": {
                "samples": len(rtts_s),
                "rtt_ms": median_ms(rtts_s),
                "rtt_ms_range": [milliseconds(min(rtts_s)), milliseconds(max(rtts_s))]
                if rtts_s
                else None,
                "bandwidth_bits": round(median(self.bandwidths)) if self.bandwidths else None,
            },
        }


def summarize(records: Iterable[Record]) -> Summary:
    """Summarize a trace, which begins with `start`."""
    answers, rest = split(records)
    started = next(of_type(rest, events.TraceStarted)).event
    summary = Summary(rest[0].side, started.model, answers)
    for record in rest:
        match record.event:
            case events.LinkProbed(rtt=rtt, bandwidth=bandwidth):
                summary.rtts_s += [] if rtt is None else [rtt]
                summary.bandwidths += [] if bandwidth is None else [bandwidth]
            case events.MessageSent(bytes=size):
                summary.idle_sent += size
            case events.MessageReceived(bytes=size):
                summary.idle_received += size
            case _:
                pass
    return summary
