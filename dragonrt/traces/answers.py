"""Which records belong to which answer, and which answers of two traces are the same one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from dragonrt.traces import events
from dragonrt.traces.counts import AnswerCounts, is_opening, milliseconds
from dragonrt.traces.events import Event, Record
from dragonrt.traces.ledger import Ledger

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
    def found(self) -> AnswerCounts:
        return AnswerCounts.of(self.records)

    @cached_property
    def decisions(self) -> list[At[events.TokenDecided]]:
        return list(of_type(self.records, events.TokenDecided))

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the answer; the device alone keeps a ledger."""
        found = self.found
        return {
            "session": self.session,
            **({"peer": self.peer} if self.peer else {}),
            "finish": found.closed.finish if found.closed else None,
            "resumed": found.resumed,
            "load_ms": milliseconds(found.load_s),
            "prefill_ms": milliseconds(found.prefill_s),
            **found.counts.to_json(),
            **(
                {"ledger": Ledger.of(self.records).to_json()}
                if self.records[0].side == "device"
                else {}
            ),
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

    def seed(one: TracedAnswer) -> object:
        return None if one.found.opened is None else one.found.opened.settings.get("seed")

    def decided(one: TracedAnswer) -> set[tuple[int, int]]:
        return {(each.event.step, each.event.token) for each in one.decisions}

    alike = [
        one
        for one in others
        if one.found.opened is not None
        and (one.session, seed(one)) == (answer.session, seed(answer))
    ]
    ours = decided(answer)
    return max(alike, key=lambda one: len(decided(one) & ours), default=None)
