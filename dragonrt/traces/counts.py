"""What happened in an answer, counted once: statistics and summaries are told from it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from dragonrt.side import Side
from dragonrt.traces.answers import is_opening
from dragonrt.traces.dropped_mass import DroppedMass
from dragonrt.traces.events import (
    AggregatorSwitched,
    AnswerClosed,
    AnswerOpened,
    BlockJudged,
    BlockOutrun,
    BlockSent,
    ForwardDone,
    ForwardPreempted,
    ForwardStopped,
    MessageReceived,
    MessageSent,
    Record,
    RolledBack,
    RoundDecided,
    SideReady,
    TargetDecoded,
    TextsDiverged,
    ThresholdMoved,
    TokenDecided,
    WentAlone,
)


def _by_side() -> dict[Side, int]:
    return {"device": 0, "cloud": 0}


@dataclass(slots=True)
class Counts:
    """One answer, or the sum of several, as one side saw it. Times are seconds.

    Of both sides' drafts `compared` were looked at in a decision, `accepted` of them stand. Drafts
    behind a refused one of a block do not count: they were for another text. `between_s` is the
    time from the first decision to the last, and spans `intervals` tokens; `waited_s` that before
    each decision, by what it waited for.

    `block_tokens` in `blocks` were sent in `bits` bits by the papers' formulas. Of the `verified`
    blocks with their `judged` tokens, `stood` tokens stand, and in `resampled` blocks one was
    refused and replaced. The target ran `calls` forwards for them, and for the `decoded` tokens
    that the cloud decided by itself. `unverified` tokens of an approximate answer stand without the
    target's verdict; the target has not even read the last `unread` ones. `missing` has, by the
    worker's name, the rounds that it took no part in.

    `preemptions` were asked for, `preempted` forwards did stop.
    """

    tokens: int = 0
    first_token_s: list[float] = field(default_factory=list)
    between_s: float = 0.0
    intervals: int = 0
    compared: dict[Side, int] = field(default_factory=_by_side)
    accepted: dict[Side, int] = field(default_factory=_by_side)
    waited_s: dict[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    forwards: int = 0
    forward_s: float = 0.0
    drafts: int = 0
    preemptions: int = 0
    preempted: int = 0
    blocks: int = 0
    block_tokens: int = 0
    bits: int = 0
    verified: int = 0
    calls: int = 0
    decoded: int = 0
    judged: int = 0
    stood: int = 0
    resampled: int = 0
    verify_s: float = 0.0
    verdicts_waited_s: float = 0.0
    unverified: int = 0
    unread: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    rollbacks: int = 0
    dropped: int = 0
    switches: int = 0
    divergences: int = 0
    losses: int = 0
    dropped_mass: DroppedMass | None = None

    def add(self, other: "Counts") -> None:
        """Take in those of another answer."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                for key, part in theirs.items():
                    mine[key] = mine.get(key, 0) + part
            elif mine is None or theirs is None:
                setattr(self, each.name, mine or theirs)
            else:
                setattr(self, each.name, mine + theirs)


@dataclass(slots=True)
class AnswerCounts:
    """A fold over the records of one answer, live or from a file.

    `opened_s` and `last_s` are the times of its beginning and of the newest decision.
    """

    counts: Counts = field(default_factory=Counts)
    opened: AnswerOpened | None = None
    opened_s: float | None = None
    last_s: float | None = None
    load_s: float = 0.0
    prefill_s: float = 0.0
    alone_from: int | None = None
    closed: AnswerClosed | None = None

    @classmethod
    def of(cls, records: Iterable[Record]) -> "AnswerCounts":
        found = cls()
        for record in records:
            found.take(record)
        return found

    def take(self, record: Record) -> None:
        """The next record; those that say nothing of an answer's costs are left alone."""
        counts, event = self.counts, record.event
        if self.opened_s is None and (isinstance(event, AnswerOpened) or is_opening(event)):
            self.opened_s = record.t
        match event:
            case MessageSent():
                counts.bytes_sent += event.bytes
            case MessageReceived():
                counts.bytes_received += event.bytes
            case ForwardDone():
                counts.forwards += 1
                counts.drafts += event.tokens
                counts.forward_s += event.seconds
            case TokenDecided():
                self._take_decision(record.t, event)
            case BlockSent():
                counts.blocks += 1
                counts.block_tokens += event.tokens
                counts.bits += event.bits
            case BlockJudged():
                self._take_verdict(event)
            case TargetDecoded():
                counts.calls += 1
                counts.decoded += 1
            case BlockOutrun():
                counts.judged += event.tokens
                counts.stood += event.tokens
                self._compare("device", event.tokens, event.tokens)
            case ThresholdMoved() if self.opened is not None:
                if counts.dropped_mass is None:
                    counts.dropped_mass = DroppedMass.of(self.opened)
                counts.dropped_mass.take(event)
            case RoundDecided():
                for name in event.missing:
                    counts.missing[name] = counts.missing.get(name, 0) + 1
            case RolledBack():
                counts.rollbacks += 1
                counts.dropped += event.dropped
            case ForwardPreempted():
                counts.preemptions += 1
            case ForwardStopped():
                counts.preempted += 1
            case AggregatorSwitched():
                counts.switches += 1
            case TextsDiverged():
                counts.divergences += 1
            case WentAlone():
                counts.losses += 1
                if self.alone_from is None:
                    self.alone_from = event.step
            case AnswerOpened() if self.opened is None:  # else it goes on in another session
                self.opened = event
            case SideReady():
                self.load_s, self.prefill_s = event.load, event.prefill
            case AnswerClosed():
                self.closed = event
            case _:
                pass

    @property
    def mode(self) -> str:
        return "" if self.opened is None else self.opened.mode

    @property
    def resumed(self) -> bool:
        """Whether it had tokens before it began here."""
        return self.opened is not None and self.opened.accepted > 0

    def _take_decision(self, now: float, event: TokenDecided) -> None:
        counts = self.counts
        counts.tokens += 1
        if self.last_s is not None:
            counts.between_s += now - self.last_s
            counts.intervals += 1
        elif self.opened_s is not None and not self.resumed:
            counts.first_token_s.append(now - self.opened_s)
        self.last_s = now
        counts.waited_s[event.cause] = counts.waited_s.get(event.cause, 0.0) + event.waited
        if event.device is not None and event.cloud is not None:
            self._compare("device", event.device, 1)
            self._compare("cloud", event.cloud, 1)
        elif self.opened is not None and not self.opened.exact and event.cause == "own":
            counts.unverified += 1
            counts.unread += 1
            self._compare("device", 1, 1)

    def _take_verdict(self, event: BlockJudged) -> None:
        counts = self.counts
        refused = event.accepted < event.tokens
        counts.verified += 1
        counts.calls += event.verify > 0  # else the text judged the block, and no forward
        counts.judged += event.tokens
        counts.stood += event.accepted
        counts.resampled += refused
        counts.verify_s += event.verify
        counts.verdicts_waited_s += event.waited
        counts.unread = 0
        self._compare("device", event.accepted, event.accepted + refused)

    def _compare(self, side: Side, accepted: int, compared: int) -> None:
        self.counts.accepted[side] += accepted
        self.counts.compared[side] += compared


def share(part: float, whole: float) -> float | None:
    """A rate for people; None where there was nothing to measure."""
    return round(part / whole, 4) if whole else None


def mean(total: float, count: int) -> float | None:
    """As `share`, with one digit."""
    return round(total / count, 1) if count else None


def milliseconds(seconds: float | None) -> float | None:
    """Of seconds, if there are any."""
    return None if seconds is None else round(1000 * seconds, 3)


def acceptance(counts: Counts) -> dict[Side, Any]:
    """The share of each side's drafts that stand."""
    return {side: share(counts.accepted[side], counts.compared[side]) for side in counts.compared}
