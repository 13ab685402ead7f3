"""Which records belong to which answer, and which answers of two traces are the same one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from dragonrt.traces.events import (
    AnswerOpened,
    Drafted,
    Event,
    LinkProbed,
    MessageReceived,
    MessageSent,
    Record,
    Rejoined,
    SideReady,
    TokenDecided,
    TraceStarted,
    WentAlone,
)

E = TypeVar("E", covariant=True)

OPENS = "open"
"""The message that opens a session."""


@dataclass(frozen=True, slots=True)
class At(Generic[E]):
    """An event and its time in seconds."""

    time_s: float
    event: E


def of_type(records: Iterable[Record], kind: type[E]) -> Iterator[At[E]]:
    """The events of one type."""
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
    def opened(self) -> At[AnswerOpened] | None:
        return next(of_type(self.records, AnswerOpened), None)

    @property
    def seed(self) -> object:
        return None if self.opened is None else self.opened.event.settings.get("seed")

    @cached_property
    def decisions(self) -> list[At[TokenDecided]]:
        return list(of_type(self.records, TokenDecided))

    @property
    def tokens(self) -> list[int]:
        return [decision.event.token for decision in self.decisions]

    @property
    def whole(self) -> bool:
        """Begun with the first token, and never without the other side since."""
        begun = self.opened is not None and self.opened.event.accepted == 0
        return begun and not any(
            isinstance(each.event, WentAlone | Rejoined) for each in self.records
        )

    @property
    def vocabulary(self) -> int | None:
        ready = next(of_type(self.records, SideReady), None)
        return None if ready is None else ready.event.vocabulary

    @property
    def drafts(self) -> Mapping[int, Drafted]:
        """What this side drafted, by the hash of the prefix."""
        return {each.event.prefix: each.event for each in of_type(self.records, Drafted)}


def split(records: Iterable[Record]) -> tuple[list[TracedAnswer], list[Record]]:
    """A trace's answers in the order in which they began, and the records that belong to none.

    A number that is opened again is another answer's. A coordinator's workers' sessions are parts
    of its answer, which has no session itself.
    """
    answers: list[TracedAnswer] = []
    rest: list[Record] = []
    current: dict[tuple[str, int], TracedAnswer] = {}
    opened: set[tuple[tuple[str, int], type[Event]]] = set()
    for record in records:
        key, event = _key(record), record.event
        if _is_idle(record):
            rest.append(record)
            continue
        if isinstance(event, AnswerOpened) or (is_opening(event) and not _is_part(record)):
            # The event and the message come in either order: one of a kind per answer.
            if key not in current or (key, type(event)) in opened:
                opened -= {(key, kind) for kind in (AnswerOpened, MessageSent, MessageReceived)}
                current[key] = TracedAnswer(record.session, record.peer)
                answers.append(current[key])
            opened.add((key, type(event)))
        (current[key].records if key in current else rest).append(record)
    return answers, rest


def _is_idle(record: Record) -> bool:
    message = isinstance(record.event, MessageSent | MessageReceived)
    return isinstance(record.event, LinkProbed | TraceStarted) or (message and not record.session)


def _is_part(record: Record) -> bool:
    """Whether it is of one worker's session in a coordinator's answer."""
    return record.side == "device" and bool(record.peer)


def _key(record: Record) -> tuple[str, int]:
    return ("", 0) if _is_part(record) else (record.peer, record.session)


def is_opening(event: Event) -> bool:
    """Whether it is the message that opens a session."""
    return isinstance(event, MessageSent | MessageReceived) and event.message == OPENS


# The same answer on both sides.


def twin(answer: TracedAnswer, others: Sequence[TracedAnswer]) -> TracedAnswer | None:
    """The other side's part of an answer: same session and seed, and most tokens in common."""

    def decided(one: TracedAnswer) -> set[tuple[int, int]]:
        return {(each.event.step, each.event.token) for each in one.decisions}

    def same(one: TracedAnswer) -> bool:
        return one.opened is not None and (one.session, one.seed) == (answer.session, answer.seed)

    ours = decided(answer)
    alike = [one for one in others if same(one)]
    return max(alike, key=lambda one: len(decided(one) & ours), default=None)


def whole_pairs(
    device: Sequence[TracedAnswer], cloud: Sequence[TracedAnswer]
) -> list[tuple[TracedAnswer, TracedAnswer]]:
    """The answers of at least two tokens that both sides gave together from the first one on.

    In the device's order. The cloud may miss the last tokens.
    """
    left = [other for other in cloud if other.whole and other.tokens]
    found = []
    for answer in device:
        if not answer.whole or len(answer.tokens) < 2:
            continue
        for place, other in enumerate(left):
            theirs = other.tokens
            if other.seed == answer.seed and theirs == answer.tokens[: len(theirs)]:
                found.append((answer, left.pop(place)))
                break
    return found
