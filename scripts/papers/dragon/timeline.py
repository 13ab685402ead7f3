"""One answer of a trace as a timeline: the work of both sides, messages, decisions."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from dragonrt.errors import DragonError
from dragonrt.side import SIDES, Side, other
from dragonrt.traces import events
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Record
from dragonrt.traces.statistics import TimedEvent, of_type, split


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward that made drafts of `tokens` steps from `step` on.

    `accepted`: whether the draft of `step` became the target token; None if it was discarded
    before.
    """

    start_s: float
    end_s: float
    step: int
    tokens: int
    accepted: bool | None


@dataclass(frozen=True, slots=True)
class Track:
    """One side of an answer. `stopped` are the (start, end) of preempted forwards."""

    forwards: tuple[Forward, ...]
    decisions: tuple[TimedEvent[events.TokenDecided], ...]
    stopped: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One answer. Times are seconds since the question; `rtts` are (time, round trip) of probes."""

    title: str
    tracks: dict[Side, Track]
    flights: tuple["Flight", ...]
    switches: tuple[TimedEvent[events.AggregatorSwitched], ...]
    estimates: tuple[TimedEvent[events.LatencyEstimated], ...]
    rtts: tuple[tuple[float, float], ...]

    @property
    def decisions(self) -> tuple[TimedEvent[events.TokenDecided], ...]:
        """The decisions of the traced side; of the device if both are traced."""
        return next(self.tracks[side].decisions for side in SIDES if side in self.tracks)


def timeline(by_side: Mapping[Side, Sequence[Record]], session: int | None = None) -> Timeline:
    """Return one answer of traces by side: the session's, else the one with most tokens.

    Of several as long it is the last. Raises DragonError if there is no such answer.
    """
    answers = {side: split(by_side[side])[0] for side in SIDES if side in by_side}
    side = next(iter(answers))
    tokens = {
        number: counts.tokens
        for number, counts in enumerate(map(AnswerCounts.of, answers[side]))
        if counts.opened and session in (None, answers[side][number][0].session) and counts.tokens
    }
    if not tokens:
        which = "answer" if session is None else f"answer of session {session}"
        raise DragonError(f"there is no {which} with tokens in the {side}'s trace")
    number = max(reversed(tokens), key=tokens.__getitem__)
    chosen: dict[Side, Sequence[Record]] = {side: answers[side][number]}
    if len(answers) == 2:
        twin_answer = _twin(chosen[side], answers[other(side)])
        if twin_answer is None:
            which = f"session {chosen[side][0].session}"
            raise DragonError(f"{which} is in one of the two traces only: are they of one run?")
        chosen[other(side)] = twin_answer
    opened = next(of_type(chosen[side], events.AnswerOpened))
    records = {each: _moved(one, -opened.time_s) for each, one in chosen.items()}
    both = sorted((record for each in records.values() for record in each), key=lambda one: one.t)
    probes = of_type(_moved(by_side[side], -opened.time_s), events.LinkProbed)
    rtts = [(at.time_s, at.event.rtt) for at in probes if 0 <= at.time_s <= both[-1].t]
    settings = opened.event.settings
    return Timeline(
        title=f"{settings.get('rule', '?')}, {settings.get('aggregator', opened.event.mode)}",
        tracks={each: _track(each, found) for each, found in records.items()},
        flights=tuple(flights(records)),
        switches=tuple(of_type(both, events.AggregatorSwitched)),
        estimates=tuple(of_type(both, events.LatencyEstimated)),
        rtts=tuple((t, rtt) for t, rtt in rtts if rtt is not None),
    )


def _moved(records: Sequence[Record], seconds: float) -> list[Record]:
    return [structs.replace(record, t=record.t + seconds) for record in records]


def _track(side: Side, records: Sequence[Record]) -> Track:
    """Return one side's track; a step's last forward before its decision is the compared one."""
    compared: dict[int, TimedEvent[events.ForwardDone]] = {}
    accepted: dict[int, bool | None] = {}
    forwards = list(of_type(records, events.ForwardDone))
    coming = iter(forwards)
    for event in (record.event for record in records):
        if isinstance(event, events.ForwardDone):
            steps = range(event.step, event.step + event.tokens)
            compared |= dict.fromkeys(set(steps) - accepted.keys(), next(coming))
        elif isinstance(event, events.TokenDecided):
            accepted[event.step] = event.accepted(side)
    return Track(
        forwards=tuple(
            Forward(
                at.time_s - at.event.seconds,
                at.time_s,
                at.event.step,
                at.event.tokens,
                accepted.get(at.event.step) if compared.get(at.event.step) is at else None,
            )
            for at in forwards
        ),
        decisions=tuple(of_type(records, events.TokenDecided)),
        stopped=tuple(
            (at.time_s - at.event.seconds, at.time_s)
            for at in of_type(records, events.ForwardStopped)
        ),
    )


def _twin(answer: Sequence[Record], others: Iterable[Sequence[Record]]) -> Sequence[Record] | None:
    """Find the other side's part of an answer: same session and seed, most tokens in common."""

    def identity(one: Sequence[Record]) -> tuple[Any, ...]:
        opened = next(of_type(one, events.AnswerOpened), None)
        return (one[0].session, opened.event.settings.get("seed")) if opened else ()

    def decided(one: Sequence[Record]) -> set[tuple[int, int]]:
        return {(at.event.step, at.event.token) for at in of_type(one, events.TokenDecided)}

    alike = [one for one in others if identity(one) == identity(answer)]
    return max(alike, key=lambda one: len(decided(one) & decided(answer)), default=None)


@dataclass(frozen=True, slots=True)
class Flight:
    """A message in transit, by the records of its ends; `arrived` is None if unknown."""

    message: str
    sent: Record
    arrived: Record | None


def by_side(traces: Sequence[list[Record]]) -> dict[Side, list[Record]]:
    """Return one or two traces by their side.

    Raises DragonError for two traces of the same side, and of two clocks.
    """
    found = {records[0].side: records for records in traces}
    if len(found) < len(traces):
        raise DragonError("both files are traces of the same side: give one of each")
    if len({next(of_type(each, events.TraceStarted)).event.clock for each in traces}) > 1:
        raise DragonError("the traces are of two clocks: record both sides on one machine")
    return found


def flights(traces: Mapping[Side, Sequence[Record]]) -> Iterator[Flight]:
    """Pair every message sent with the first unpaired one received of its kind, step and round.

    Those received before they were sent, as after a lost connection, are skipped.
    """
    sent: list[tuple[tuple[object, ...], Record, str]] = []
    received: dict[tuple[object, ...], deque[Record]] = defaultdict(deque)
    for side, records in traces.items():
        for record in records:
            event = record.event
            if isinstance(event, events.MessageSent | events.MessageReceived):
                # Devices number their sessions alike.
                kind = record.session, event.message, event.step, event.round
                if isinstance(event, events.MessageSent):
                    sent.append(((side, *kind), record, event.message))
                else:
                    received[other(side), *kind].append(record)
    for key, record, message in sent:
        arrived = received[key]
        while arrived and arrived[0].t < record.t:
            arrived.popleft()
        yield Flight(message, record, arrived.popleft() if arrived else None)
