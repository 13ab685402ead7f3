"""Fold the records of an answer into counts, which every statistic and summary is made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.dropped_mass import DroppedMass
from dragonrt.traces.events import Event, Record

OPENS = "open"
"""The message that opens a session."""

ADDS: Mapping[type[Event], Mapping[str, str]] = {
    events.MessageSent: {"bytes_sent": "bytes"},
    events.MessageReceived: {"bytes_received": "bytes"},
    events.ForwardDone: {"forwards": "", "drafted": "tokens", "forward_s": "seconds"},
    events.TokenDecided: {"tokens": ""},
    events.BlockSent: {"blocks": "", "block_tokens": "tokens", "bits": "bits"},
    events.BlockJudged: {
        "verified": "",
        "judged": "tokens",
        "stood": "accepted",
        "verify_s": "verify",
        "verdicts_waited_s": "waited",
    },
    events.TargetDecoded: {"calls": "", "decoded": ""},
    events.BlockOutrun: {"judged": "tokens", "stood": "tokens"},
    events.RolledBack: {"rollbacks": "", "dropped": "dropped"},
    events.ForwardPreempted: {"preemptions": ""},
    events.ForwardStopped: {"preempted": ""},
    events.AggregatorSwitched: {"switches": ""},
    events.TextsDiverged: {"divergences": ""},
    events.WentAlone: {"losses": ""},
}
"""What an event adds to the counts: the value of its field of that name, or 1 without a name."""

SUMS = (
    *("bytes_sent", "bytes_received", "forwards", "drafted", "blocks", "block_tokens", "bits"),
    *("verified", "resampled", "preemptions", "rollbacks", "dropped", "switches", "divergences"),
    "losses",
)
"""Counts that are reported as they are."""


def is_opening(event: Event) -> bool:
    """Whether it is the message that opens a session."""
    return isinstance(event, events.MessageSent | events.MessageReceived) and event.message == OPENS


def _by_side() -> dict[Side, int]:
    return {"device": 0, "cloud": 0}


@dataclass(slots=True)
class Counts:
    """One answer, or the sum of several, as one side saw it. Times are seconds.

    `compared` drafts of each side took part in a decision, and `accepted` of them became tokens;
    drafts behind a rejected one of a block do not count. `between_s` is the time from the first
    decision to the last, over `intervals` tokens; `waited_s` that before each decision, by cause.

    `block_tokens` in `blocks` were sent in `bits` bits by the papers' formulas. Of `verified`
    blocks with `judged` tokens, `stood` tokens were accepted, and in `resampled` blocks one was
    replaced. The cloud `decoded` tokens by itself; for both the target ran `calls` forwards. Of an
    approximate answer `unverified` tokens had no verification, and the target has not read the last
    `unread` ones. `missing` has the rounds that each worker, by name, missed. `preemptions` were
    requested, `preempted` forwards stopped.
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
    drafted: int = 0
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
        """Add those of another answer."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                for key, part in theirs.items():
                    mine[key] = mine.get(key, 0) + part
            elif mine is None or theirs is None:
                setattr(self, each.name, mine or theirs)
            else:
                setattr(self, each.name, mine + theirs)

    def to_json(self) -> dict[str, Any]:
        """Return rates and means where they exist, milliseconds; None where there is nothing."""
        travelled = self.bytes_sent + self.bytes_received
        dropped_mass = self.dropped_mass
        return {
            "tokens": self.tokens,
            "time_to_first_token_ms": median_ms(self.first_token_s),
            "ms_per_token": ms_each(self.between_s, self.intervals),
            "acceptance": acceptance(self),
            "waited_ms": {
                cause: milliseconds(seconds) for cause, seconds in sorted(self.waited_s.items())
            },
            "bytes_per_token": mean(travelled, self.tokens),
            "ms_per_forward": ms_each(self.forward_s, self.forwards),
            "tokens_per_block": mean(self.block_tokens, self.blocks),
            "bits_per_token": mean(self.bits, self.tokens) if self.blocks else None,
            "resampling_rate": share(self.resampled, self.verified),
            "ms_per_verdict": ms_each(self.verify_s, self.verified),
            **{name: getattr(self, name) for name in SUMS},
            "absences": sum(self.missing.values()),
            "conformal": None if dropped_mass is None else dropped_mass.to_json(),
        }


@dataclass(slots=True)
class AnswerCounts:
    """A fold over the records of one answer, live or from a file.

    `opened_s` and `last_s` are the times of its beginning and of the newest decision.
    """

    counts: Counts = field(default_factory=Counts)
    opened: events.AnswerOpened | None = None
    opened_s: float | None = None
    last_s: float | None = None
    load_s: float = 0.0
    prefill_s: float = 0.0
    alone_from: int | None = None
    closed: events.AnswerClosed | None = None

    @classmethod
    def of(cls, records: Iterable[Record]) -> "AnswerCounts":
        found = cls()
        for record in records:
            found.take(record)
        return found

    def take(self, record: Record) -> None:
        """Add the next record."""
        counts, event = self.counts, record.event
        if self.opened_s is None and (isinstance(event, events.AnswerOpened) or is_opening(event)):
            self.opened_s = record.t
        for name, part in ADDS.get(type(event), {}).items():
            setattr(counts, name, getattr(counts, name) + (getattr(event, part) if part else 1))
        match event:
            case events.TokenDecided():
                self._take_decision(record.t, event)
            case events.BlockJudged():
                self._take_verdict(event)
            case events.BlockOutrun():
                self._compare("device", event.tokens, event.tokens)
            case events.ThresholdMoved() if self.opened is not None:
                if counts.dropped_mass is None:
                    counts.dropped_mass = DroppedMass.of(self.opened)
                counts.dropped_mass.take(event)
            case events.RoundDecided():
                for name in event.missing:
                    counts.missing[name] = counts.missing.get(name, 0) + 1
            case events.WentAlone() if self.alone_from is None:
                self.alone_from = event.step
            case events.AnswerOpened() if self.opened is None:  # else it goes on in another session
                self.opened = event
            case events.SideReady():
                self.load_s, self.prefill_s = event.load, event.prefill
            case events.AnswerClosed():
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

    def _take_decision(self, now: float, event: events.TokenDecided) -> None:
        counts = self.counts
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

    def _take_verdict(self, event: events.BlockJudged) -> None:
        refused = event.accepted < event.tokens
        self.counts.calls += event.verify > 0  # else the text judged the block, and no forward
        self.counts.resampled += refused
        self.counts.unread = 0
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


def ms_each(seconds: float, count: int) -> float | None:
    """Milliseconds for each of `count`."""
    return milliseconds(seconds / count) if count else None


def median_ms(seconds: list[float]) -> float | None:
    """Median in milliseconds."""
    return milliseconds(median(seconds)) if seconds else None
