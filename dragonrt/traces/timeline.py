"""Traces as a timeline of one answer: what both sides did, what travelled, what was decided.

With both sides' traces every message has its two ends. Clocks of different hosts are brought
together by the messages themselves: the fastest one of each direction is taken to have needed the
same time (as NTP does).
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dragonrt.errors import DragonError
from dragonrt.side import Side, other
from dragonrt.traces.answers import At, TracedAnswer, of_type, split, twin
from dragonrt.traces.events import (
    AggregatorSwitched,
    AnswerOpened,
    ForwardDone,
    ForwardStopped,
    LatencyEstimated,
    LinkProbed,
    MessageReceived,
    MessageSent,
    Record,
    TokenDecided,
    TraceStarted,
)

SIDES: tuple[Side, ...] = ("device", "cloud")


class TimelineError(DragonError):
    """Traces that do not belong together, or hold no answer."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward that made drafts of `tokens` steps from `step` on.

    `accepted` is whether the draft of `step` became the target token; None where it was never
    compared, since the line it was made for had died.
    """

    start_s: float
    end_s: float
    step: int
    tokens: int
    accepted: bool | None


@dataclass(frozen=True, slots=True)
class Flight:
    """A message on its way, by the records of its ends; `arrived` is None where it is not known."""

    message: str
    sent: Record
    arrived: Record | None

    @property
    def sender(self) -> Side:
        return self.sent.side

    @property
    def start_s(self) -> float:
        return self.sent.t

    @property
    def end_s(self) -> float | None:
        return None if self.arrived is None else self.arrived.t


@dataclass(frozen=True, slots=True)
class Track:
    """One side of an answer. `stopped` are the (start, end) of preempted forwards."""

    forwards: tuple[Forward, ...]
    decisions: tuple[At[TokenDecided], ...]
    stopped: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One answer. Times are seconds since it was asked; `rtts` are (time, round trip) of probes."""

    title: str
    tracks: dict[Side, Track]
    flights: tuple[Flight, ...]
    switches: tuple[At[AggregatorSwitched], ...]
    estimates: tuple[At[LatencyEstimated], ...]
    rtts: tuple[tuple[float, float], ...]

    @property
    def decisions(self) -> tuple[At[TokenDecided], ...]:
        """The decisions of the side that is traced, the device's where both are."""
        return next(self.tracks[side].decisions for side in SIDES if side in self.tracks)


def aligned(traces: Sequence[Sequence[Record]]) -> dict[Side, list[Record]]:
    """The records of one or two sides on one clock, the first file's.

    Raises TimelineError for two traces of the same side.
    """
    by_side: dict[Side, list[Record]] = {}
    for records in traces:
        if records[0].side in by_side:
            raise TimelineError("both files are traces of the same side: give one of each")
        by_side[records[0].side] = list(records)
    if len(by_side) == 2:
        first, second = by_side
        by_side[second] = _moved(by_side[second], _shift(first, by_side))
    return by_side


def _moved(records: Iterable[Record], seconds: float) -> list[Record]:
    return [replace(record, t=record.t + seconds) for record in records]


def _shift(first: Side, by_side: Mapping[Side, Sequence[Record]]) -> float:
    """Seconds to add to the second file's times."""
    clocks = [
        started.event.clock for side in SIDES for started in of_type(by_side[side], TraceStarted)
    ]
    if len(clocks) == 2 and clocks[0] == clocks[1]:
        return 0.0
    fastest: dict[Side, float] = {}
    for flight in flights(by_side, check=False):
        if flight.end_s is not None:
            needed_s = flight.end_s - flight.start_s
            fastest[flight.sender] = min(needed_s, fastest.get(flight.sender, needed_s))
    if len(fastest) < 2:
        raise TimelineError("the two traces have no messages in common: are they of one run?")
    return (fastest[other(first)] - fastest[first]) / 2


def timeline(by_side: Mapping[Side, Sequence[Record]], session: int | None = None) -> Timeline:
    """One answer of traces that `aligned` returned: that session's, else the one of most tokens.

    Raises TimelineError where there is no such answer.
    """
    answers = {side: split(by_side[side])[0] for side in SIDES if side in by_side}
    side = next(iter(answers))
    answer, opened = _longest(side, answers[side], session)
    chosen = {side: answer}
    if len(answers) == 2:
        twin_answer = twin(answer, answers[other(side)])
        if twin_answer is None:
            raise TimelineError(
                f"session {answer.session} is in one of the two traces only: are they of one run?"
            )
        chosen[other(side)] = twin_answer
    start_s = opened.time_s
    records = {each: _moved(one.records, -start_s) for each, one in chosen.items()}
    both = sorted((record for each in records.values() for record in each), key=lambda one: one.t)
    probes = ((at.time_s - start_s, at.event.rtt) for at in of_type(by_side[side], LinkProbed))
    settings = opened.event.settings
    return Timeline(
        title=f"{settings.get('rule', '?')}, {settings.get('aggregator', opened.event.mode)}",
        tracks={each: _track(each, found) for each, found in records.items()},
        flights=tuple(flights(records)),
        switches=tuple(of_type(both, AggregatorSwitched)),
        estimates=tuple(of_type(both, LatencyEstimated)),
        rtts=tuple((t, rtt) for t, rtt in probes if rtt is not None and 0 <= t <= both[-1].t),
    )


def _longest(
    side: Side, answers: Sequence[TracedAnswer], session: int | None
) -> tuple[TracedAnswer, At[AnswerOpened]]:
    """The answer to show; the last one of several as long."""
    found: tuple[TracedAnswer, At[AnswerOpened]] | None = None
    for answer in answers:
        if answer.opened is None or session not in (None, answer.session) or not answer.decisions:
            continue
        if found is None or len(answer.decisions) >= len(found[0].decisions):
            found = answer, answer.opened
    if found is None:
        which = "answer" if session is None else f"answer of session {session}"
        raise TimelineError(f"there is no {which} with tokens in the {side}'s trace")
    return found


def _track(side: Side, records: Sequence[Record]) -> Track:
    stopped = of_type(records, ForwardStopped)
    return Track(
        forwards=_forwards(side, records),
        decisions=tuple(of_type(records, TokenDecided)),
        stopped=tuple((each.time_s - each.event.seconds, each.time_s) for each in stopped),
    )


def _forwards(side: Side, records: Sequence[Record]) -> tuple[Forward, ...]:
    """All forwards; the last one of a step before its decision is the one that was compared."""
    compared: dict[int, int] = {}
    accepted: dict[int, bool | None] = {}
    forwards: list[At[ForwardDone]] = []
    for record in records:
        match record.event:
            case ForwardDone(step=first, tokens=tokens) as done:
                for step in range(first, first + tokens):
                    if step not in accepted:
                        compared[step] = len(forwards)
                forwards.append(At(record.t, done))
            case TokenDecided(step=step) as decided:
                accepted[step] = decided.accepted(side)
            case _:
                pass
    return tuple(
        Forward(
            each.time_s - each.event.seconds,
            each.time_s,
            each.event.step,
            each.event.tokens,
            accepted.get(each.event.step) if compared.get(each.event.step) == number else None,
        )
        for number, each in enumerate(forwards)
    )


_Kind = tuple[Side, int, str, int | None, int | None]


def flights(by_side: Mapping[Side, Sequence[Record]], *, check: bool = True) -> Iterator[Flight]:
    """Every message with both its ends: the first one not yet received of its kind, step and round.

    `check` leaves out ends before their beginnings, as a lost connection leaves them.
    """
    received: dict[_Kind, deque[Record]] = defaultdict(deque)
    for side, records in by_side.items():
        for record in records:
            if isinstance(record.event, MessageReceived):
                received[_kind(other(side), record.session, record.event)].append(record)
    for side, records in by_side.items():
        for record in records:
            if not isinstance(record.event, MessageSent):
                continue
            arrived = received[_kind(side, record.session, record.event)]
            while check and arrived and arrived[0].t < record.t:
                arrived.popleft()
            end = arrived.popleft() if arrived else None
            yield Flight(record.event.message, record, end)


def _kind(sender: Side, session: int, event: MessageSent | MessageReceived) -> _Kind:
    """Devices number their sessions alike."""
    return sender, session, event.message, event.step, event.round
