"""What a trace says in numbers: per answer and in total."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from dragonrt.side import Side
from dragonrt.traces.answers import TracedAnswer, of_type, split
from dragonrt.traces.counts import AnswerCounts, Counts, acceptance, mean, milliseconds, share
from dragonrt.traces.events import (
    LinkProbed,
    MessageReceived,
    MessageSent,
    Record,
    TraceStarted,
)
from dragonrt.traces.ledger import Ledger


def report(counts: Counts) -> dict[str, Any]:
    """Rates and means where they can be taken, milliseconds; None where there is nothing."""
    travelled = counts.bytes_sent + counts.bytes_received
    dropped_mass = counts.dropped_mass
    return {
        "tokens": counts.tokens,
        "time_to_first_token_ms": _median_ms(counts.first_token_s),
        "ms_per_token": _ms_each(counts.between_s, counts.intervals),
        "acceptance": acceptance(counts),
        "waited_ms": {
            cause: milliseconds(seconds) for cause, seconds in sorted(counts.waited_s.items())
        },
        "bytes_per_token": mean(travelled, counts.tokens),
        "ms_per_forward": _ms_each(counts.forward_s, counts.forwards),
        "tokens_per_block": mean(counts.block_tokens, counts.blocks),
        "bits_per_token": mean(counts.bits, counts.tokens) if counts.blocks else None,
        "resampling_rate": share(counts.resampled, counts.verified),
        "ms_per_verdict": _ms_each(counts.verify_s, counts.verified),
        "bytes_sent": counts.bytes_sent,
        "bytes_received": counts.bytes_received,
        "forwards": counts.forwards,
        "drafted": counts.drafts,
        "blocks": counts.blocks,
        "block_tokens": counts.block_tokens,
        "bits": counts.bits,
        "verified": counts.verified,
        "resampled": counts.resampled,
        "preemptions": counts.preemptions,
        "rollbacks": counts.rollbacks,
        "dropped": counts.dropped,
        "switches": counts.switches,
        "divergences": counts.divergences,
        "losses": counts.losses,
        "absences": sum(counts.missing.values()),
        "conformal": None if dropped_mass is None else dropped_mass.to_json(),
    }


@dataclass(frozen=True, slots=True)
class SummedAnswer:
    """One answer, or the part of it made in one session, as one side saw it.

    The device alone keeps a `ledger`.
    """

    session: int
    peer: str
    found: AnswerCounts
    ledger: Ledger | None = None

    def to_json(self) -> dict[str, Any]:
        found = self.found
        where = {"peer": self.peer} if self.peer else {}
        return {
            "session": self.session,
            **where,
            "finish": found.closed.finish if found.closed else None,
            "resumed": found.resumed,
            "load_ms": milliseconds(found.load_s),
            "prefill_ms": milliseconds(found.prefill_s),
            **report(found.counts),
            **({} if self.ledger is None else {"ledger": self.ledger.to_json()}),
        }


@dataclass(slots=True)
class Summary:
    """One side's trace. Probes are the samples of the round trip (s) and bandwidth (bit/s).

    `idle_sent` and `idle_received` are bytes that belong to no answer: handshakes and probes.
    """

    side: Side
    model: str
    answers: list[SummedAnswer]
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
        """The object that `dragonrt trace --json` prints for a file."""
        rtts_s = self.rtts_s
        return {
            "side": self.side,
            "model": self.model,
            "answers": [answer.to_json() for answer in self.answers],
            "total": report(self.total),
            "other_bytes": {"sent": self.idle_sent, "received": self.idle_received},
            "probes": {
                "samples": len(rtts_s),
                "rtt_ms": _median_ms(rtts_s),
                "rtt_ms_range": [milliseconds(min(rtts_s)), milliseconds(max(rtts_s))]
                if rtts_s
                else None,
                "bandwidth_bits": round(median(self.bandwidths)) if self.bandwidths else None,
            },
        }


def summarize(records: Iterable[Record]) -> Summary:
    """The summary of a trace, which begins with `start`."""
    answers, rest = split(records)
    started = next(of_type(rest, TraceStarted)).event
    summary = Summary(
        rest[0].side,
        started.model,
        [_summed(rest[0].side, each) for each in answers],
    )
    for record in rest:
        match record.event:
            case LinkProbed(rtt=rtt, bandwidth=bandwidth):
                summary.rtts_s += [] if rtt is None else [rtt]
                summary.bandwidths += [] if bandwidth is None else [bandwidth]
            case MessageSent(bytes=size):
                summary.idle_sent += size
            case MessageReceived(bytes=size):
                summary.idle_received += size
            case _:
                pass
    return summary


def _summed(side: Side, answer: TracedAnswer) -> SummedAnswer:
    records = answer.records
    ledger = Ledger.of(records) if side == "device" else None
    return SummedAnswer(answer.session, answer.peer, AnswerCounts.of(records), ledger)


def _ms_each(seconds: float, count: int) -> float | None:
    return milliseconds(seconds / count) if count else None


def _median_ms(seconds: list[float]) -> float | None:
    return milliseconds(median(seconds)) if seconds else None
