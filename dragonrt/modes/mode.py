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
    """The other side sent what this answer cannot use; only the session with it ends."""


OnLoss = Literal["alone", "wait"]
"""With the other side lost: go on without it, or wait, so that the text stays what it would be."""


class Finish(StrEnum):
    """Why an answer ended: at a stop token, at `Question.max_tokens`, or cancelled."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


def finish_of(question: Question, tokens: Sequence[int], length: int) -> Finish | None:
    """Return why an answer of the first `length` of `tokens` is complete; None if it is not."""
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
        """κ, the log of the share of its weight that this side keeps in a value: at most 0."""

    @property
    def hidden(self) -> NDArray[np.float32]:
        """The output layer's input [hidden], mixed by `weights`. Only if the Span has `hidden`."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """ω̃, the weight in `p` of each row, which reads one document: [rows]."""

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weight ω̃ of each row times its probability of each token: [rows, tokens]."""


def files_alone(prediction: Prediction, files: Sequence[int], token: int) -> tuple[float, ...]:
    """Return the bits of evidence of each own file for `token`, which this side decides alone."""
    tokens = np.array([token])
    shares = RowShares(files, tokens, prediction.weights, prediction.shares(tokens))
    return shares.without_each(token, 1.0, 0.0)


Postprocess = Callable[[Sequence[Prediction]], Any]
"""A pure function of the predictions that a Work asks for."""


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The prefixes of a text after which to predict, of the lengths `first` … `len(tokens)`.

    `hashes[n]` is the prefix hash of the first n tokens. Both lists are copies. `hidden`: whether
    `Prediction.hidden` is wanted.
    """

    tokens: list[int]
    hashes: list[int]
    first: int
    hidden: bool = False

    @classmethod
    def of(cls, text: TokenPrefix, first: int, last: int, *, hidden: bool = False) -> "Span":
        """Return the prefixes of a text from length `first` to `last`, both included."""
        return cls(text.tokens[:last], text.hashes[: last + 1], first, hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A computation that a mode wants: `postprocess` of the predictions along `span`, then `guess`.

    Attributes:
        span: None if it reads no predictions and does not wait for the model.
        guess: tokens read behind the span in the same forward, with a prediction after each.
        peer: the side whose message is computed on; a DragonError ends the session with it.
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
    """An effect: end the session with `peer`; if `again`, open it anew from the decided tokens."""

    peer: str
    end: End
    again: bool = False


@dataclass(slots=True)
class Effects:
    """What one input leads to, in the order in which the driver executes it.

    `send` has (peer, message). `preempt` stops the forward under way; `failed` ends the answer.
    """

    events: list[Event] = field(default_factory=list)
    send: list[tuple[str, SessionMessage]] = field(default_factory=list)
    leave: list[Leave] = field(default_factory=list)
    preempt: bool = False
    finished: Finish | None = None
    failed: DragonError | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """An input: this side has read the question.

    If `exact_blocks`, several tokens in one forward give the same bits as one by one. Row n read
    the document of the tokens `texts[n]`, from the own file with the index `files[n]`, then the
    prompt `question`. `context` counts the tokens before the answer, with the longest document.
    """

    exact_blocks: bool = True
    texts: Sequence[Sequence[int]] = ()
    files: Sequence[int] = ()
    context: int = 0
    question: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """An input: a session with `peer` is open, which has the number `session`."""

    peer: str
    session: int


@dataclass(frozen=True, slots=True)
class Left:
    """An input: the session with `peer` is over. If it `returns`, another one may follow."""

    peer: str
    end: End
    returns: bool


@dataclass(frozen=True, slots=True)
class Received:
    """An input: `peer` sent a message in its session, which a ModeError of `handle` ends."""

    peer: str
    message: SessionMessage


@dataclass(frozen=True, slots=True)
class Measured:
    """An input: the smoothed round trip to `peer` in seconds, and the bandwidth if it is known."""

    peer: str
    rtt_s: float
    bits_per_s: float | None


@dataclass(frozen=True, slots=True)
class Computed:
    """An input: postprocessing `work` gave `result`, after a forward of `seconds`."""

    work: Work
    result: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Preempted:
    """An input: the forward of `work` was stopped after `seconds`, or its postprocessing failed."""

    work: Work
    seconds: float


@dataclass(frozen=True, slots=True)
class TimedOut:
    """An input: the time has come that `Mode.deadline` gave."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """An input: the user stopped the answer."""

    reason: Finish


Input = Prepared | Joined | Left | Received | Measured | Computed | Preempted | TimedOut | Stopped


class Mode:
    """One side's part of one answer: a method for each input, and Effects collected in `_out`.

    `moved` is the evidence behind the decided tokens, as far as this side knows. If `ready`, this
    side has read the question; `finish` is why the answer is complete, once it is.
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
        """The tokens decided so far, those of a resumed answer (`Question.accepted`) included."""
        raise NotImplementedError

    def wanted(self) -> Work | None:
        """Return the next Work, which is under way from now on; None, the default, for none."""
        return None

    def deadline(self) -> float | None:
        """Return the time in seconds at which TimedOut is due; None, the default, for never."""
        return None

    def disclosed(self, question: Question) -> Question:
        """Return `question` as it is sent to another side now, with the decided tokens."""
        return question.resumed(tuple(self.decided))

    def handle(self, happened: Input, now: float) -> Effects:
        """Return the effects of an input at `now`. Raises ModeError if its session must end."""
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
        """Add to the effects that `message` is sent in the session with `peer`."""
        self._out.send.append((peer, message))

    def leave(self, left: Leave) -> None:
        self._out.leave.append(left)

    def emit(self, *found: Event) -> None:
        """Add events of this answer to the effects; the driver publishes them."""
        self._out.events += found

    def _notice(self, kind: NoticeKind, text: str, reason: Reason | None = None) -> None:
        self.emit(Noticed(kind, text, reason))
