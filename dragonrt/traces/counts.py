"""Compute all numbers of an answer in one pass over its records; every report uses them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from math import inf, isfinite
from typing import Any

from msgspec import structs

from dragonrt.distributions.lattice import ConformalThreshold, theorem2_bound
from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.traces.events import EVENTS, Event, Record

OPENS = "open"
ROUNDING = 1e-12


def is_opening(event: Event) -> bool:
    """Return whether an event reports a sent or received Open message, which begins a session."""
    return isinstance(event, events.MessageSent | events.MessageReceived) and event.message == OPENS


def summed(*sources: str, start: float = 0) -> Any:
    """Declare a field of Counts or AnswerCounts: `start` plus a sum over the trace's events.

    The source "block" counts events with that tag, "block.bits" sums their field `bits`.
    """
    return field(default=start, metadata={"sources": sources})


def _by_side() -> dict[Side, int]:
    return {"device": 0, "cloud": 0}


@dataclass(slots=True)
class DroppedMass:
    """The probability that C-SQS cut off at `tokens` tokens, with its bound (SQS Thm. 2).

    C-SQS sends the probabilities above a threshold, which it adapts at each token. `dropped` sums
    all others, and `allowed` is the theorem's bound on this sum. `threshold` is what Eq. (8) of SQS
    gives for the next token. If any token's real threshold differed from that, `follows` is False
    and the theorem does not hold. `+` joins two answers.
    """

    first: ConformalThreshold
    threshold: ConformalThreshold
    tokens: int = 0
    dropped: float = 0.0
    allowed: float = 0.0
    follows: bool = True

    @classmethod
    def of(cls, opened: events.AnswerOpened, moved: events.ThresholdMoved) -> "DroppedMass":
        learning_rate, target, horizon = map(
            opened.settings.get, ("learning_rate", "target", "horizon")
        )
        first = ConformalThreshold.first(moved.beta, learning_rate or 0.0, target or 0.0, horizon)
        return cls(first, first)

    def take(self, moved: events.ThresholdMoved) -> None:
        first = self.first
        self.follows &= abs(moved.beta - self.threshold.beta) <= ROUNDING
        self.threshold = self.threshold.after(moved.dropped)
        self.tokens += 1
        self.dropped += moved.dropped
        self.allowed = inf  # no bound without a learning rate
        if first.eta > 0:
            bound = theorem2_bound(self.tokens, first.beta, first.eta, first.alpha)
            self.allowed = self.tokens * bound

    def __add__(self, other: "DroppedMass") -> "DroppedMass":
        last, first, allowed = self.threshold, other.first, other.allowed
        same_rates = (first.eta, first.alpha) == (last.eta, last.alpha)
        if same_rates and abs(first.beta - last.beta) <= ROUNDING:  # the same run
            allowed = other.tokens * first.alpha
        return replace(
            other,
            tokens=self.tokens + other.tokens,
            dropped=self.dropped + other.dropped,
            allowed=self.allowed + allowed,
            follows=self.follows and other.follows,
        )

    def to_json(self) -> dict[str, Any]:
        bound = self.allowed / self.tokens
        return {
            "tokens": self.tokens,
            "average_dropped": self.dropped / self.tokens,
            "beta": self.threshold.beta,
            "bound": bound if isfinite(bound) else None,
            "says_nothing": bound >= 1,  # no token has more mass than that
            "follows": self.follows,
        }


@dataclass(slots=True)
class Counts:
    """The numbers of one answer, or sums over several, from one side's trace. Times are seconds.

    Of each side's `compared` drafts, `accepted` ones became tokens of the answer. `between_s` is
    the time from the first token to the last, `intervals` the number of tokens after the first.
    `waited_s` sums the waits before tokens by the `cause` of TokenDecided. `preemptions` counts
    requests to stop a forward, `preempted` the forwards that stopped.
    `blocks` with `block_tokens` drafts were sent in `bits` bits. `verified` blocks had a result: a
    draft was rejected in `resampled` ones, and `accepted_tokens` of `judged` drafts were accepted.
    The cloud `decoded` tokens while it had no block; in all, its model ran `calls` forwards. In
    mode `sprinter` the device decided `unverified` tokens alone, `unread` of them since the last
    result. `missing` counts, by worker of mode `federated`, the rounds in which it sent nothing.
    """

    tokens: int = summed("decide")
    first_token_s: list[float] = field(default_factory=list)
    between_s: float = 0.0
    intervals: int = 0
    compared: dict[Side, int] = field(default_factory=_by_side)
    accepted: dict[Side, int] = field(default_factory=_by_side)
    waited_s: dict[str, float] = field(default_factory=dict)
    bytes_sent: int = summed("send.bytes")
    bytes_received: int = summed("receive.bytes")
    forwards: int = summed("decode")
    forward_s: float = summed("decode.seconds", start=0.0)
    drafted: int = summed("decode.tokens")
    preemptions: int = summed("preempt")
    preempted: int = summed("stopped")
    blocks: int = summed("block")
    block_tokens: int = summed("block.tokens")
    bits: int = summed("block.bits")
    verified: int = summed("verdict")
    calls: int = summed("decoded")
    decoded: int = summed("decoded")
    judged: int = summed("verdict.tokens", "outrun.tokens")
    accepted_tokens: int = summed("verdict.accepted", "outrun.tokens")
    resampled: int = 0
    verify_s: float = summed("verdict.verify", start=0.0)
    verdicts_waited_s: float = summed("verdict.waited", start=0.0)
    unverified: int = 0
    unread: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    rollbacks: int = summed("rollback")
    dropped: int = summed("rollback.dropped")
    switches: int = summed("switch")
    divergences: int = summed("diverge")
    losses: int = summed("alone")
    dropped_mass: DroppedMass | None = None

    def add(self, other: "Counts") -> None:
        for each in fields(Counts):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                both = {key: mine.get(key, 0) + theirs.get(key, 0) for key in mine | theirs}
            else:
                both = mine or theirs if None in (mine, theirs) else mine + theirs
            setattr(self, each.name, both)


@dataclass(slots=True)
class AnswerCounts(Counts):
    """The numbers of one answer, or of all parts of a question; call `take` with each record.

    `opened_s` is when the answer began, `begun_s` its current part, `last_s` the latest decision.
    The fields `question_bytes` to `documents_named` count what left the device; `undecided` has
    (step, token) of the part's sent drafts. For `weighed` tokens, `evidence_bits` sums log2 of the
    probability in the mixture over that by the cloud alone. `file_bits` has such a sum per file,
    over the probability in the mixture without the file. `revealed` sums, over sent tokens, log2 of
    the device's probability over the cloud's, each at least 0; it is None if not computed.
    """

    opened: events.AnswerOpened | None = None
    opened_s: float | None = None
    begun_s: float | None = None
    last_s: float | None = None
    load_s: float = 0.0
    prefill_s: float = 0.0
    alone_from: int | None = None
    closed: events.AnswerClosed | None = None
    question_bytes: int = summed("disclose.question")
    history_bytes: int = summed("disclose.history")
    tokens_sent: int = summed("disclose.tokens")
    distributions_sent: int = summed("disclose.distributions")
    documents_named: int = summed("disclose.documents")
    tokens_withheld: int = summed("decide.withheld")
    weighed: int = 0
    evidence_bits: float = 0.0
    file_bits: list[float] = field(default_factory=list)
    revealed: float | None = None
    undecided: list[tuple[int, int]] = field(default_factory=list)
    decided: dict[int, int] = field(default_factory=dict)
    dead: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> "AnswerCounts":
        found = cls()
        for record in records:
            found.take(record)
        return found

    def take(self, record: Record) -> None:
        event = record.event
        if self.begun_s is None and (isinstance(event, events.AnswerOpened) or is_opening(event)):
            self.begun_s = record.t
            self.opened_s = record.t if self.opened_s is None else self.opened_s
        for name, part in _SUMMANDS[type(event)]:
            setattr(self, name, getattr(self, name) + (getattr(event, part) if part else 1))
        match event:
            case events.TokenDecided():
                self._take_decision(record.t, event)
                self._take_evidence(event)
            case events.BlockJudged():
                self._take_verdict(event)
            case events.BlockOutrun():
                self._compare("device", event.tokens, event.tokens)
            case events.Disclosed(step=int(step), token=int(token)):
                self.undecided.append((step, token))
            case events.ThresholdMoved() if self.opened is not None:
                if self.dropped_mass is None:
                    self.dropped_mass = DroppedMass.of(self.opened, event)
                self.dropped_mass.take(event)
            case events.RoundDecided():
                for name in event.missing:
                    self.missing[name] = self.missing.get(name, 0) + 1
            case events.WentAlone() if self.alone_from is None:
                self.alone_from = event.step
            case events.AnswerOpened() if self.opened is None:  # else it resumes in another session
                self.opened = event
            case events.SideReady():
                self.load_s, self.prefill_s = event.load, event.prefill
            case events.AnswerClosed():
                self._take_end(event)

    @property
    def resumed(self) -> bool:
        """Whether these are the records of an interrupted answer from its resumption on."""
        return self.opened is not None and self.opened.accepted > 0

    @property
    def unused(self) -> int:
        """How many drafted tokens were sent but did not become the answer's token at their step."""
        dead = sum(self.decided.get(step) != token for step, token in self.undecided)
        return self.dead + dead + self.block_tokens - self.accepted_tokens

    def _take_decision(self, now: float, event: events.TokenDecided) -> None:
        if self.last_s is not None and (self.begun_s is None or self.last_s >= self.begun_s):
            self.between_s += now - self.last_s
            self.intervals += 1
        elif self.begun_s is not None and not self.resumed:
            self.first_token_s.append(now - self.begun_s)
        self.last_s = now
        self.waited_s[event.cause] = self.waited_s.get(event.cause, 0.0) + event.waited
        if event.device is not None and event.cloud is not None:
            self._compare("device", event.device, 1)
            self._compare("cloud", event.cloud, 1)
        elif self.opened is not None and not self.opened.exact and event.cause == "own":
            self.unverified += 1
            self.unread += 1
            self._compare("device", 1, 1)

    def _take_evidence(self, event: events.TokenDecided) -> None:
        self.decided[event.step] = event.token
        if event.revealed is not None:
            self.revealed = (self.revealed or 0.0) + event.revealed
        if event.evidence is not None:
            self.weighed += 1
            self.evidence_bits += event.evidence
            both = zip_longest(self.file_bits, event.files, fillvalue=0.0)
            self.file_bits = [before + bits for before, bits in both]

    def _take_verdict(self, event: events.BlockJudged) -> None:
        rejected = event.accepted < event.tokens
        self.calls += event.verify > 0  # else the text judged the block, and no forward
        self.resampled += rejected
        self.unread = 0
        self._compare("device", event.accepted, event.accepted + rejected)

    def _take_end(self, event: events.AnswerClosed) -> None:
        """Add the bytes of an answer; the next part counts its steps and its time anew."""
        self.dead += sum(self.decided.get(step) != token for step, token in self.undecided)
        self.undecided, self.decided, self.begun_s = [], {}, None
        bytes_ = {
            name: getattr(event, name) + getattr(self.closed, name, 0)
            for name in ("bytes_sent", "bytes_received", "padding_sent", "padding_received")
        }
        self.closed = structs.replace(event, **bytes_)

    def _compare(self, side: Side, accepted: int, compared: int) -> None:
        self.accepted[side] += accepted
        self.compared[side] += compared


def _summands() -> dict[type[Event], list[tuple[str, str]]]:
    """Return, by type of event, the summed fields and the event's field that each adds."""
    kinds = {str(kind.__struct_config__.tag): kind for kind in EVENTS}
    found: dict[type[Event], list[tuple[str, str]]] = {kind: [] for kind in EVENTS}
    for each in fields(AnswerCounts):
        for source in each.metadata.get("sources", ()):
            kind, _, part = source.partition(".")
            found[kinds[kind]].append((each.name, part))
    return found


_SUMMANDS = _summands()
