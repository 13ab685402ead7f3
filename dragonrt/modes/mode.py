"""The contract of a mode: one side's part of one answer as a state machine without I/O.

Rule 1: everything that affects an answer's text lives in its mode; nothing else decides a token.
Rule 2: a mode has no socket, task, thread or clock. It gets the time, `now`, with each input.
Rule 3: a mode never computes over the vocabulary. It requests such computations as Work: a pure
function of predictions, called outside the event loop.

`handle` maps an input to Effects. Then `dragonrt.node.answers.driver` calls `wanted` until None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.errors import DragonError
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.question import Question
from dragonrt.privacy.evidence import AnswerEvidence, RowShares
from dragonrt.traces.events import Event, Noticed, NoticeKind
from dragonrt.wire.messages import SessionMessage
from dragonrt.wire.reasons import End, Reason


class ModeError(DragonError):
    """The peer sent a message that this answer cannot use; only the session with the peer ends."""


OnLoss = Literal["alone", "wait"]
"""If the other side is lost: continue without it, or wait, so that the text stays the same."""


class Finish(StrEnum):
    """Why an answer ended: at a stop token, at `Question.max_tokens`, or cancelled."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


def finish_of(question: Question, tokens: Sequence[int], length: int) -> Finish | None:
    """Return why the answer `tokens[:length]` is complete, by stop token or length; None if not."""
    if length and tokens[length - 1] in question.stop_tokens:
        return Finish.STOP
    return Finish.LENGTH if length >= question.max_tokens else None


class Prediction(Protocol):
    """A side's next-token distribution after one prefix, aggregated over its documents (SPEC 1)."""

    @property
    def p(self) -> NDArray[np.float32]:
        """The probability of each token before any sampler, float32 [vocabulary]."""

    @property
    def relevance(self) -> float:
        """The side relevance, its log-weight in mixtures: log-sum-exp of documents' relevances."""

    @property
    def kept(self) -> float:
        """The kept weight κ: the logarithm, at most 0, of the share of its weight this side keeps.

        Documents that contradict a value (number, date, code, name) of the answer lose weight.
        """

    @property
    def hidden(self) -> NDArray[np.float32]:
        """Last hidden state [size], averaged over documents by `weights`, only if `Span.hidden`."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each row in `p`: [rows]. A row of the model's batch reads one document."""

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how much each row, which reads a document, adds to `p[tokens]`: [rows, tokens]."""


def file_evidence(prediction: Prediction, files: Sequence[int], token: int) -> tuple[float, ...]:
    """Return how many bits likelier each file made `token`; prediction's row n read `files[n]`."""
    tokens = np.array([token])
    shares = RowShares(files, tokens, prediction.weights, prediction.shares(tokens))
    return shares.without_each(token, 1.0, 0.0)


Postprocess = Callable[[Sequence[Prediction]], Any]
"""A pure function of the predictions that a Work asks for."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The prefixes of `tokens` after which to predict: those of length `first` up to all tokens.

    `hashes[n]` is the prefix hash of the first n tokens. Both `tokens` and `hashes` are copies.
    If `hidden`, `Prediction.hidden` is needed, too.
    """

    tokens: list[int]
    hashes: list[int]
    first: int
    hidden: bool = False

    @classmethod
    def of(cls, text: TokenPrefix, first: int, last: int, *, hidden: bool = False) -> "Span":
        """Return the Span of the prefixes of `text` from length `first` to `last`, inclusive."""
        return cls(text.tokens[:last], text.hashes[: last + 1], first, hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A computation that a mode wants: `postprocess`, applied to predictions by the model.

    Attributes:
        span: the prefixes to predict after; None if no model is needed.
        guess: tokens read after the span in the same forward, with a prediction after each.
        peer: the side whose message is processed; a DragonError ends the session with it.
        following: maps the result to the Work wanted next unless an input comes in between. It is
            pure, and called off the event loop to start that Work early.
    """

    postprocess: Postprocess
    span: Span | None = None
    guess: Sequence[int] = ()
    peer: str | None = None
    following: "Callable[[Any], Work | None] | None" = None


@dataclass(frozen=True, slots=True)
class Leave:
    """A mode's effect: end the session with `peer`; if `again`, resume the answer in another."""

    peer: str
    end: End
    again: bool = False


@dataclass(slots=True)
class Effects:
    """What a mode requests of its driver, in order: record events, send, leave, preempt, end.

    `send` has pairs (peer, message), `leave` sessions to end. `preempt` stops the running forward.
    `finished` is why the answer is complete, `failed` the error that ended it instead.
    """

    events: list[Event] = field(default_factory=list)
    send: list[tuple[str, SessionMessage]] = field(default_factory=list)
    leave: list[Leave] = field(default_factory=list)
    preempt: bool = False
    finished: Finish | None = None
    failed: DragonError | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A mode's input: this side's model has read its documents and the question.

    Row n read the tokens of a document, `texts[n]`, of the own file with index `files[n]`, then the
    prompt `question`. `context` is the most tokens of a row before the answer. If `exact_blocks`,
    predictions from a forward over several tokens equal, bit by bit, those of single tokens.
    """

    exact_blocks: bool = True
    texts: Sequence[Sequence[int]] = ()
    files: Sequence[int] = ()
    context: int = 0
    question: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """A mode's input: a session with `peer` is open; its number is `session`."""

    peer: str
    session: int


@dataclass(frozen=True, slots=True)
class Left:
    """A mode's input: the session with `peer` ended; if it `returns`, another one may follow."""

    peer: str
    end: End
    returns: bool


@dataclass(frozen=True, slots=True)
class Received:
    """A mode's input: `peer` sent `message`; a ModeError of `handle` ends the session with it."""

    peer: str
    message: SessionMessage


@dataclass(frozen=True, slots=True)
class Measured:
    """A mode's input: round trip to `peer` in seconds, bandwidth in bit/s, None if unknown."""

    peer: str
    rtt_s: float
    bits_per_s: float | None


@dataclass(frozen=True, slots=True)
class Computed:
    """A mode's input: `work`'s postprocessing returned `result`; its forward took `seconds`."""

    work: Work
    result: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Preempted:
    """A mode's input: the forward of `work` failed, or was stopped after `seconds`."""

    work: Work
    seconds: float


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A mode's input: the time that `Mode.deadline` returned has come."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A mode's input: the user stopped the answer, which ends with `reason`."""

    reason: Finish


Input = Prepared | Joined | Left | Received | Measured | Computed | Preempted | TimedOut | Stopped


class Mode:
    """Base class of the modes' state machines, each for one side's part of one answer.

    `handle` maps inputs to Effects. `evidence` has by how many bits files made tokens likelier.
    If `ready`, this side has read the question; `finish` is why the answer is complete, or None.
    """

    times_bandwidth = False  # whether bandwidth decides, so that timed bursts pay for their bytes

    def __init__(self) -> None:
        self.evidence = AnswerEvidence()
        self.ready = False
        self.finish: Finish | None = None
        self._out = Effects()

    @property
    def decided(self) -> Sequence[int]:
        """The tokens decided so far, those of a resumed answer (`Question.accepted`) included."""
        raise NotImplementedError

    def wanted(self) -> Work | None:
        """Return the next Work, which the driver starts at once; None, the default, for none."""
        return None

    def deadline(self) -> float | None:
        """Return the time in seconds at which TimedOut is due; None, the default, for never."""
        return None

    def disclosed(self, question: Question) -> Question:
        """Return the question for a peer that joins now, without text the peer must not get."""
        return question.resumed(tuple(self.decided))

    def handle(self, happened: Input, now: float) -> Effects:
        """Return the effects of an input at `now` seconds. Raises ModeError for a bad message."""
        match happened:
            case Prepared():
                self._prepared(happened, now)
            case Joined(peer, session):
                self._joined(peer, session, now)
            case Left(peer, end, returns):
                self._left(peer, end, returns, now)
            case Received(peer, message):
                try:
                    self._received(peer, message, now)
                except DragonError as error:
                    raise ModeError(str(error)) from error
            case Measured(_, rtt_s, bits_per_s):
                self._measured(rtt_s, bits_per_s)
            case Computed(work, result, seconds):
                self._computed(work, result, seconds, now)
            case Preempted(work, seconds):
                self._preempted(work, seconds, now)
            case TimedOut():
                self._timed_out(now)
            case Stopped(reason):
                self._end(reason)
        out, self._out = self._out, Effects()
        return out

    # One for each input; what a mode does not override, leads to nothing.

    def _prepared(self, prepared: Prepared, now: float) -> None: ...
    def _joined(self, peer: str, session: int, now: float) -> None: ...
    def _left(self, peer: str, end: End, returns: bool, now: float) -> None: ...
    def _received(self, peer: str, message: SessionMessage, now: float) -> None: ...
    def _measured(self, rtt_s: float, bits_per_s: float | None) -> None: ...
    def _computed(self, work: Work, result: Any, seconds: float, now: float) -> None: ...
    def _preempted(self, work: Work, seconds: float, now: float) -> None: ...
    def _timed_out(self, now: float) -> None: ...

    def _end(self, finish: Finish | None) -> None:
        if finish is not None and self.finish is None:
            self.finish = self._out.finished = finish
            self._out.preempt = True

    def send_to(self, peer: str, message: SessionMessage) -> None:
        """Add a message to the effects, to be sent in the session with `peer`."""
        self._out.send.append((peer, message))

    def leave(self, left: Leave) -> None:
        self._out.leave.append(left)

    def emit(self, *found: Event) -> None:
        """Add trace events of this answer to the effects; the driver publishes them."""
        self._out.events += found

    def _notice(self, kind: NoticeKind, text: str, reason: Reason | None = None) -> None:
        self.emit(Noticed(kind, text, reason))
