"""The answers of a trace, and a trace in numbers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Generic, TypeVar

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
    """Select the events of one type, with their times."""
    return (At(each.t, each.event) for each in records if isinstance(each.event, kind))


def split(records: Iterable[Record]) -> tuple[list[list[Record]], list[Record]]:
    """Return the records of each answer of a trace, in order of their beginning, and all others.

    An answer begins with AnswerOpened or with the opening message; a killed process has written
    only the message. A session number that is opened again is another answer. The sessions of a
    coordinator's workers are parts of its answer, which has no session itself.
    """
    answers: list[list[Record]] = []
    rest: list[Record] = []
    current: dict[tuple[str, int], list[Record]] = {}
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
                current[key], begun[key] = [], set()
                answers.append(current[key])
            begun[key].add(type(event))
        current.get(key, rest).append(record)
    return answers, rest


def summary(records: Iterable[Record]) -> dict[str, Any]:
    """Return the `dragonrt trace --json` report of one side's trace, which begins with `start`.

    Probes are the samples of the round trip and bandwidth; they and handshakes belong to no answer.
    """
    answers, rest = split(records)
    counts, total = [AnswerCounts.of(each) for each in answers], Counts()
    for each in counts:
        total.add(each)
    probes = [at.event for at in of_type(rest, events.LinkProbed)]
    rtts_s = [each.rtt for each in probes if each.rtt is not None]
    bandwidths = [each.bandwidth for each in probes if each.bandwidth is not None]
    return {
        "side": rest[0].side,
        "model": next(of_type(rest, events.TraceStarted)).event.model,
        "answers": [_report(*each) for each in zip(answers, counts, strict=True)],
        "total": trace_report(total),
        "other_bytes": {
            "sent": sum(at.event.bytes for at in of_type(rest, events.MessageSent)),
            "received": sum(at.event.bytes for at in of_type(rest, events.MessageReceived)),
        },
        "probes": {
            "samples": len(rtts_s),
            "rtt_ms": median_ms(rtts_s),
            "rtt_ms_range": [milliseconds(pick(rtts_s)) for pick in (min, max)] if rtts_s else None,
            "bandwidth_bits": round(median(bandwidths)) if bandwidths else None,
        },
    }


def _report(records: Sequence[Record], counts: AnswerCounts) -> dict[str, Any]:
    """Return the numbers of one answer; only the device has a ledger."""
    first = records[0]
    return {
        "session": first.session,
        **({"peer": first.peer} if first.peer else {}),
        "finish": counts.closed.finish if counts.closed else None,
        "resumed": counts.resumed,
        "load_ms": milliseconds(counts.load_s),
        "prefill_ms": milliseconds(counts.prefill_s),
        **trace_report(counts),
        **({"ledger": ledger(counts)} if first.side == "device" else {}),
    }
