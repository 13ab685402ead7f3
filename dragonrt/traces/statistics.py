"""Build the reports of a trace and of single answers: time, bytes, acceptance, ledger."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Generic, TypeVar

from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.counts import AnswerCounts, Counts, is_opening
from dragonrt.traces.events import AnswerClosed, Event, Record

E = TypeVar("E", covariant=True)


@dataclass(frozen=True, slots=True)
class TimedEvent(Generic[E]):
    """An event, and the time of its record in seconds."""

    time_s: float
    event: E


def of_type(records: Iterable[Record], kind: type[E]) -> Iterator[TimedEvent[E]]:
    """Yield each event of the type `kind` in `records` as a TimedEvent, with its time."""
    return (TimedEvent(each.t, each.event) for each in records if isinstance(each.event, kind))


def split(records: Iterable[Record]) -> tuple[list[list[Record]], list[Record]]:
    """Split a trace: return the records of each answer, in order of beginning, and all others.

    An answer begins with AnswerOpened or with the Open message; a killed process has written only
    the message. A session number that is opened again is another answer. In mode `federated`, the
    sessions with workers are parts of the device's answer, which has no session itself.
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
    """Return the `dragonrt trace --json` report of a side's whole trace, from its TraceStarted on.

    It has each answer and their total. Probes of the link and handshakes belong to no answer.
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


SUMS = (
    *("bytes_sent", "bytes_received", "forwards", "drafted", "blocks", "block_tokens", "bits"),
    *("verified", "resampled", "preemptions", "rollbacks", "dropped", "switches", "divergences"),
    "losses",
)
"""Counts that a trace's report copies."""


def statistics(
    answer: AnswerCounts, of_mode: Callable[[AnswerCounts], dict[str, Any]] = lambda answer: {}
) -> dict[str, Any]:
    """Return the figures of a finished answer by name, as `--json` prints them.

    `of_mode` returns the mode's own figures, which come last. A figure is None if not measured.
    """
    closed, total_s = answer.closed or AnswerClosed(""), None
    if answer.last_s is not None and answer.opened_s is not None:
        total_s = answer.last_s - answer.opened_s
    return {
        "tokens": answer.tokens,
        "time_to_first_token_ms": milliseconds(next(iter(answer.first_token_s), None)),
        "ms_per_token": _ms_each(answer.between_s, answer.intervals),
        "total_ms": milliseconds(total_s),
        "bytes_sent": closed.bytes_sent,
        "bytes_received": closed.bytes_received,
        "bytes_per_token": mean(closed.bytes_sent + closed.bytes_received, answer.tokens),
        "padding_sent": closed.padding_sent,
        "padding_received": closed.padding_received,
        "frame_wait_ms": milliseconds(closed.frame_wait),
        "rtt_ms": milliseconds(closed.rtt),
        "acceptance": acceptance(answer, "device", "cloud"),
        **of_mode(answer),
    }


def trace_report(counts: Counts) -> dict[str, Any]:
    """Return the figures of an answer, or of the sum of several, for `dragonrt trace --json`."""
    dropped = counts.dropped_mass
    return {
        "tokens": counts.tokens,
        "time_to_first_token_ms": median_ms(counts.first_token_s),
        "ms_per_token": _ms_each(counts.between_s, counts.intervals),
        "acceptance": acceptance(counts, "device", "cloud"),
        "waited_ms": {
            cause: milliseconds(seconds) for cause, seconds in sorted(counts.waited_s.items())
        },
        "bytes_per_token": mean(counts.bytes_sent + counts.bytes_received, counts.tokens),
        "ms_per_forward": _ms_each(counts.forward_s, counts.forwards),
        "tokens_per_block": mean(counts.block_tokens, counts.blocks),
        "bits_per_token": mean(counts.bits, counts.tokens) if counts.blocks else None,
        "resampling_rate": share(counts.resampled, counts.verified),
        "ms_per_verdict": _ms_each(counts.verify_s, counts.verified),
        **{name: getattr(counts, name) for name in SUMS},
        "absences": sum(counts.missing.values()),
        "conformal": None if dropped is None else dropped.to_json(),
    }


def ledger(answer: AnswerCounts) -> dict[str, Any]:
    """Return the ledger of an answer by name: what left the device, to all other sides together."""
    return {
        "question_bytes": answer.question_bytes,
        "history_bytes": answer.history_bytes,
        "tokens_sent": answer.tokens_sent,
        "distributions_sent": answer.distributions_sent,
        "documents_named": answer.documents_named,
        "tokens_not_in_answer": answer.unused,
        "tokens_withheld": answer.tokens_withheld,
        "revealed_bits": None if answer.revealed is None else round(answer.revealed, 2),
        "evidence_bits": round(answer.evidence_bits, 2) if answer.weighed else None,
        "evidence_of_tokens": answer.weighed,
        "evidence_bits_of_files": [round(bits, 2) for bits in answer.file_bits],
    }


def milliseconds(seconds: float | None) -> float | None:
    """Return seconds in milliseconds, with three decimals; None for None."""
    return None if seconds is None else round(1000 * seconds, 3)


def median_ms(seconds: list[float]) -> float | None:
    """Return the median of `seconds` in milliseconds, None for an empty list."""
    return milliseconds(median(seconds)) if seconds else None


def share(part: float, whole: float) -> float | None:
    """Return `part` over `whole`, with four decimals; None if `whole` is 0."""
    return round(part / whole, 4) if whole else None


def mean(total: float, count: int) -> float | None:
    """Return `total` over `count`, with one decimal; None if `count` is 0."""
    return round(total / count, 1) if count else None


def _ms_each(seconds: float, count: int) -> float | None:
    return milliseconds(seconds / count) if count else None


def acceptance(counts: Counts, *sides: Side) -> dict[Side, float | None]:
    """Return by side the share of its compared drafts that were accepted; None if it has none."""
    return {side: share(counts.accepted[side], counts.compared[side]) for side in sides}
