"""The answers of a trace, which answers of two traces are the same one, and a trace in numbers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, Generic, TypeVar

from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.counts import AnswerCounts, Counts, is_opening
from dragonrt.traces.events import Event, Record
from dragonrt.traces.statistics import ledger, median_ms, milliseconds, trace_report

E = TypeVar("E", covariant=True)


@dataclass(frozen=True, slots=True)
class At(Generic[E]):
    """An event and its time in seconds."""

    time_s: float
    event: E


def of_type(records: Iterable[Record], kind: type[E]) -> Iterator[At[E]]:
    """Select the events of one type."""
    return (At(each.t, each.event) for each in records if isinstance(each.event, kind))


@dataclass(frozen=True)
class TracedAnswer:
    """One answer, or the part of it made in one session, as one side saw it.

    `peer` is the device's address in a cloud's trace. Without the event AnswerOpened, as where a
    process was killed, there is only the message that opens.
    """

    session: int
    peer: str
    records: list[Record] = field(default_factory=list)

    @cached_property
    def counts(self) -> AnswerCounts:
        """The figures of the answer."""
        return AnswerCounts.of(self.records)

    @cached_property
    def decisions(self) -> list[At[events.TokenDecided]]:
        """The decided tokens."""
        return list(of_type(self.records, events.TokenDecided))

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the answer; the device alone keeps a ledger."""
        counts, on_device = self.counts, self.records[0].side == "device"
        return {
            "session": self.session,
            **({"peer": self.peer} if self.peer else {}),
            "finish": counts.closed.finish if counts.closed else None,
            "resumed": counts.resumed,
            "load_ms": milliseconds(counts.load_s),
            "prefill_ms": milliseconds(counts.prefill_s),
            **trace_report(counts),
            **({"ledger": ledger(counts)} if on_device else {}),
        }


def split(records: Iterable[Record]) -> tuple[list[TracedAnswer], list[Record]]:
    """Return a trace's answers in the order in which they began, and the records of none.

    A number that is opened again is another answer's. A coordinator's workers' sessions are parts
    of its answer, which has no session itself.
    """
    answers: list[TracedAnswer] = []
    rest: list[Record] = []
    current: dict[tuple[str, int], TracedAnswer] = {}
    begun: dict[tuple[str, int], set[type[Event]]] = {}
    for record in records:
        event = record.event
        is_message = isinstance(event, events.MessageSent | events.MessageReceived)
        is_part = record.side == "device" and bool(record.peer)  # of a coordinator's answer
        key = ("", 0) if is_part else (record.peer, record.session)
        if isinstance(event, events.LinkProbed | events.TraceStarted) or (
            is_message and not record.session
        ):
            rest.append(record)
            continue
        if isinstance(event, events.AnswerOpened) or (is_opening(event) and not is_part):
            # The event and the message come in either order: one of a kind per answer.
            if type(event) in begun.get(key, {type(event)}):
                current[key], begun[key] = TracedAnswer(record.session, record.peer), set()
                answers.append(current[key])
            begun[key].add(type(event))
        (current[key].records if key in current else rest).append(record)
    return answers, rest


def twin(answer: TracedAnswer, others: Sequence[TracedAnswer]) -> TracedAnswer | None:
    """Find the other side's part of an answer: same session and seed, most tokens in common."""

    def identity(one: TracedAnswer) -> tuple[int, Any]:
        opened = one.counts.opened
        return one.session, None if opened is None else opened.settings.get("seed")

    ours = answer.counts.decided.items()
    alike = [
        one for one in others if one.counts.opened is not None and identity(one) == identity(answer)
    ]
    return max(alike, key=lambda one: len(one.counts.decided.items() & ours), default=None)


@dataclass(slots=True)
class Summary:
    """One side's trace. Probes are the samples of the round trip (s) and bandwidth (bit/s).

    `idle_sent` and `idle_received` are bytes that belong to no answer: handshakes and probes.
    """

    side: Side
    model: str
    answers: list[TracedAnswer]
    rtts_s: list[float]
    bandwidths: list[float]
    idle_sent: int
    idle_received: int

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Summary":
        """Return the summary of a trace, which begins with `start`."""
        answers, rest = split(records)
        probes = [at.event for at in of_type(rest, events.LinkProbed)]
        return cls(
            side=rest[0].side,
            model=next(of_type(rest, events.TraceStarted)).event.model,
            answers=answers,
            rtts_s=[each.rtt for each in probes if each.rtt is not None],
            bandwidths=[each.bandwidth for each in probes if each.bandwidth is not None],
            idle_sent=sum(at.event.bytes for at in of_type(rest, events.MessageSent)),
            idle_received=sum(at.event.bytes for at in of_type(rest, events.MessageReceived)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object that `dragonrt trace --json` prints for a file."""
        rtts_s, total = self.rtts_s, Counts()
        for answer in self.answers:
            total.add(answer.counts)
        return {
            "side": self.side,
            "model": self.model,
            "answers": [answer.to_json() for answer in self.answers],
            "total": trace_report(total),
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
