"""The contract of a mode: one side's part of one answer as a state machine without I/O.

Rule 1: everything that affects an answer's text lives in its mode; nothing else decides a token.
Rule 2: a mode sees no socket, task, thread or clock. Time comes in as `now`, the next time that
something is due comes out of `deadline`.
Rule 3: a mode never computes over the vocabulary. What has to be computed it wants as Work, which
runs beside the event loop: postprocessing is a pure function of the predictions.

`handle` takes one input and returns Effects: an answer is a fold over its inputs. After each,
`wanted` is called until it returns None. The driver is `dragonrt.node.answers.driver`; the same
modes run on simulated models in virtual time.
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
from dragonrt.privacy.evidence import Moved, RowShares
from dragonrt.traces.events import Event, Noticed, NoticeKind
from dragonrt.wire.messages import SessionMessage
from dragonrt.wire.reasons import End, Reason


class ModeError(DragonError):
    """The other side sent what this answer cannot use: its session ends, nothing else."""


OnLoss = Literal["alone", "wait"]
"""With the other side lost: go on without it, or wait, so that the text stays what it would be."""


class Finish(StrEnum):
    """The reason for which an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


def finish_of(question: Question, tokens: Sequence[int], length: int) -> Finish | None:
    """Return why an answer of the first `length` tokens is complete, or None."""
    if length and tokens[length - 1] in question.stop_tokens:
        return Finish.STOP
    return Finish.LENGTH if length >= question.max_tokens else None


class Prediction(Protocol):
    """A side's locally aggregated next-token distribution after one prefix (SPEC 1)."""

    @property
    def p(self) -> NDArray[np.float32]:
        """Probabilities [vocabulary], before any sampler."""

    @property
    def relevance(self) -> float:
        """h̃, the log-sum-exp of the documents' relevances."""

    @property
    def kept(self) -> float:
        """The logarithm of the share of its weight that this side keeps in a value: at most 0."""

    @property
    def hidden(self) -> NDArray[np.float32]:
        """The input of the output layer [hidden], rows weighed alike. Only if the Span wants it."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """ω̃, the weight of each document's row: [rows]."""

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ω̃ p(x) of each row for these tokens: [rows, tokens]."""


def files_alone(prediction: Prediction, files: Sequence[int], token: int) -> tuple[float, ...]:
    """Return the leave-one-out evidence in bits of each file for a token that its side decided."""
    tokens = np.array([token])
    shares = RowShares(files, tokens, prediction.weights, prediction.shares(tokens))
    return shares.without_each(token, 1.0, 0.0)


Postprocess = Callable[[Sequence[Prediction]], Any]
"""A pure function of the predictions that a Work asks for."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The prefixes of a text of length `first` … `len(tokens)`.

    `hashes` are those of all prefixes, one more than `tokens`. Both are copies. `hidden`: whether
    `Prediction.hidden` is wanted.
    """

    tokens: list[int]
    hashes: list[int]
    first: int
    hidden: bool = False

    @classmethod
    def of(cls, text: TokenPrefix, first: int, last: int, *, hidden: bool = False) -> "Span":
        """Return the prefixes of a text from length `first` to `last`."""
        return cls(text.tokens[:last], text.hashes[: last + 1], first, hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A computation that a mode wants: `postprocess` of the predictions along `span`, then `guess`.

    Attributes:
        span: None if it reads no predictions and does not wait for the model.
        guess: tokens read behind the span in the same forward.
        peer: the side whose input is computed on: a DragonError then ends its session.
        following: given the result, the Work wanted next unless an input comes in between.
            Pure, as it is called beside the loop.
    """

    postprocess: Postprocess
    span: Span | None = None
    guess: Sequence[int] = ()
    peer: str | None = None
    following: "Callable[[Any], Work | None] | None" = None


@dataclass(frozen=True, slots=True)
class Leave:
    """A session that this side ends; with `again` it is opened anew from the decided tokens."""

    peer: str
    end: End
    again: bool = False


@dataclass(slots=True)
class Effects:
    """The effects of one input, in the order in which the driver executes them.

    `preempt` stops the forward under way as soon as possible; `failed` says why there is no answer.
    """

    events: list[Event] = field(default_factory=list)
    send: list[tuple[str, SessionMessage]] = field(default_factory=list)
    leave: list[Leave] = field(default_factory=list)
    preempt: bool = False
    finished: Finish | None = None
    failed: DragonError | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """This side has read the question.

    If `exact_blocks`, several tokens in one forward give the same bits as one by one. `texts` are
    the tokens of each row's document, of the own file `files[row]`, `question` those of the prompt
    behind it. `context` counts the tokens before the answer, with the longest document.
    """

    exact_blocks: bool = True
    texts: Sequence[Sequence[int]] = ()
    files: Sequence[int] = ()
    context: int = 0
    question: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """A session of that number is open with `peer`."""

    peer: str
    session: int


@dataclass(frozen=True, slots=True)
class Left:
    """The session with `peer` is over. If it `returns`, another one may follow."""

    peer: str
    end: End
    returns: bool


@dataclass(frozen=True, slots=True)
class Received:
    """`peer` sent a message of its session. A ModeError ends that session."""

    peer: str
    message: SessionMessage


@dataclass(frozen=True, slots=True)
class Measured:
    """The smoothed round trip to `peer` in seconds, and the bandwidth if it is known."""

    peer: str
    rtt_s: float
    bits_per_s: float | None


@dataclass(frozen=True, slots=True)
class Computed:
    """Postprocessing `work` gave `result`; `seconds` is the time of its forward."""

    work: Work
    result: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Preempted:
    """The forward of `work` was stopped after `seconds`, or could not be postprocessed."""

    work: Work
    seconds: float


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The deadline has passed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The user stopped the answer."""

    reason: Finish


Input = Prepared | Joined | Left | Received | Measured | Computed | Preempted | TimedOut | Stopped


class Mode:
    """One side's part of one answer: a method for each input, and Effects collected in `_out`.

    `moved` is the evidence behind the decided tokens, as far as this side knows. If `ready`, it
    has read the question; `finish` is why the answer is complete, once it is.
    """

    times_bandwidth = False
    """Whether it decides by the bandwidth, so that timed bursts are worth their bytes."""

    def __init__(self) -> None:
        self.moved = Moved()
        self.ready = False
        self.finish: Finish | None = None
        self._out = Effects()

    @property
    def decided(self) -> Sequence[int]:
        """The tokens decided so far, the accepted ones included."""
        raise NotImplementedError

    def wanted(self) -> Work | None:
        """Return the next Work, which is under way from now on; None if there is none."""
        return None

    def deadline(self) -> float | None:
        """Return when TimedOut is due, or None."""
        return None

    def disclosed(self, question: Question) -> Question:
        """Return the question as it is sent to another side now, with the decided tokens."""
        return question.resumed(tuple(self.decided))

    def handle(self, happened: Input, now: float) -> Effects:
        """Process one input. Raises ModeError for a message that ends its session."""
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
        """Send a message of the session with that side."""
        self._out.send.append((peer, message))

    def leave(self, left: Leave) -> None:
        self._out.leave.append(left)

    def emit(self, *found: Event) -> None:
        """Publish events of this answer."""
        self._out.events += found

    def _notice(self, kind: NoticeKind, text: str, reason: Reason | None = None) -> None:
        self.emit(Noticed(kind, text, reason))
