"""The cloud's part of every mode in which the other side drafts blocks (SPEC 2 - 4).

    block --follows the text--> read --its tokens--> one forward --judged--> Verdict or Upload

Blocks wait in a bounded inbox and are answered in order. One that follows another text than the one
that stands was drafted ahead on a wrong guess: it is dropped without an answer, as the side that
drafted it knows. What a block holds and what is said of it is the mode's `Judging`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dragonrt.distributions import Distribution
from dragonrt.modes.line import LOW_BITS, Line, start_hash
from dragonrt.modes.mode import Effects, Finish, Grounds, Leave, ModeError, Said, Span, Work
from dragonrt.modes.question import Question
from dragonrt.modes.settings import MAX_OUTSTANDING
from dragonrt.patience import USUAL, Patience
from dragonrt.sampling.verification import Judgement
from dragonrt.traces import events
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import Reason

INBOX = 2 * MAX_OUTSTANDING
"""Blocks that may wait here: those under way, behind others that a verdict has made useless."""
LARGEST_READING = 2**27
"""Probabilities in one forward: positions times documents times vocabulary (512 MiB of float32)."""


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block as it was decoded: the tokens drafted from step `step` on.

    `q` are the distributions that they were drafted from, where those travel.
    """

    step: int
    tokens: list[int]
    q: Sequence[Distribution] | None


@dataclass(frozen=True, slots=True)
class InPlace:
    """The verdict on a block of one token: `token` is at its place, the draft if it is accepted.

    `accepted` is 0 or 1. Nothing follows, unlike behind a Judgement.
    """

    accepted: int
    token: int


@dataclass(frozen=True, slots=True)
class Uploads:
    """Distributions as an answer: an encoded one for each drafted token, and one more.

    `relevance` is the log-sum-exp of the relevances of the documents that they rest on.
    """

    relevance: float
    payloads: tuple[bytes, ...]


class Judging(Protocol):
    """How a mode reads blocks and what it answers: pure heads, run beside the loop."""

    def read(self, block: wire.Block) -> ReadBlock:
        """The content of a block. Raises DragonError for one that cannot be read."""
        ...

    def answer(self, block: ReadBlock, said: Sequence[Said]) -> Judgement | InPlace | Uploads:
        """The answer, given what the model says after the prefixes from the block's step on.

        With a Judgement the text goes on with the tokens that it lets stand and with its token,
        with an InPlace by its token; with Uploads with what the next block says was decided.
        """
        ...


@dataclass(frozen=True, slots=True)
class _UnderWay:
    message: wire.Block
    came_s: float
    since_s: float


class BlockVerifier:
    """Implements Mode for the side that a device opens a session of blocks with."""

    times_bandwidth = False
    verifies = True

    def __init__(
        self,
        question: Question,
        judging: Judging,
        vocabulary: int,
        patience: Patience = USUAL,
    ) -> None:
        self._question = question
        self._judging = judging
        self._vocabulary = vocabulary
        self._patience = patience
        self._line = Line(start_hash(question.seed), question.accepted)
        self._peer: str | None = None
        self._session = 0
        self._inbox: deque[tuple[wire.Block, float]] = deque()
        self._dropped = 0
        self._round = 0
        self._block: ReadBlock | None = None
        self._under_way: _UnderWay | None = None
        self._work: Work | None = None
        self._ready = self._over = False
        self._heard_s = 0.0
        self._out = Effects()

    # What the driver asks.

    @property
    def decided(self) -> Sequence[int]:
        return self._line.tokens

    def told(self, question: Question) -> Question:
        return question.resumed(tuple(self.decided))

    def measured(self, peer: str, rtt_s: float, bits_per_s: float | None) -> None:
        """Nothing here depends on the link."""

    def deadline(self) -> float | None:
        idle = self._ready and not self._over and self._under_way is None and not self._inbox
        return self._heard_s + self._patience.idle_s if idle else None

    def prepared(self, grounds: Grounds, now: float) -> Effects:
        self._ready, self._heard_s = True, now
        self._take_next()
        return self._effects()

    def joined(self, peer: str, session: int, now: float) -> Effects:
        self._peer, self._session = peer, session
        return self._effects()

    def left(self, peer: str, reason: str, returns: bool, now: float) -> Effects:
        return self.stop(self._finish(), now)

    def stop(self, reason: Finish, now: float) -> Effects:
        if not self._over:
            self._over = True
            self._inbox.clear()
            self._out.finished, self._out.preempt = reason, True
        return self._effects()

    def tick(self, now: float) -> Effects:
        limit = self.deadline()
        if limit is not None and now >= limit and self._peer is not None:
            text = f"no block came for {self._patience.idle_s:g} s"
            self._out.leave.append(Leave(self._peer, Reason.ERROR, text))
        return self._effects()

    def received(self, peer: str, message: wire.SessionMessage, now: float) -> Effects:
        if not isinstance(message, wire.Block):
            raise ModeError(f"a {type(message).__name__} has no place in a session of blocks")
        question = self._question
        if message.round <= self._round:
            raise ModeError(f"block {message.round} came after block {self._round}")
        if len(self._inbox) >= INBOX:
            raise ModeError(f"more than {INBOX} blocks wait for an answer")
        if message.step + message.count > question.max_tokens:
            raise ModeError(
                f"a block of {message.count} tokens at step {message.step} reaches beyond the "
                f"longest answer, {question.max_tokens} tokens"
            )
        rows = max(1, question.documents)
        if (message.count + 1) * rows * self._vocabulary > LARGEST_READING:
            raise ModeError(
                f"a block of {message.count} tokens over {rows} documents takes too much memory: "
                "send shorter blocks or ask for fewer documents"
            )
        self._round, self._heard_s = message.round, now
        self._inbox.append((message, now))
        self._take_next()
        return self._effects()

    # The work on one block after the other.

    def wanted(self) -> Work | None:
        if self._under_way is None or self._over or self._work is not None:
            return None
        message = self._under_way.message
        if self._block is None:
            self._work = Work(lambda _: self._judging.read(message), peer=self._peer)
        else:
            self._work = self._judged(self._block)
        return self._work

    def _take_next(self) -> None:
        idle = self._ready and not self._over and self._under_way is None
        while idle and self._inbox and not self._out.leave:
            message, came_s = self._inbox.popleft()
            if self._follow(message):
                self._under_way = _UnderWay(message, came_s, came_s)
                idle = False

    def _judged(self, block: ReadBlock) -> Work:
        line = self._line
        line.replace_from(block.step, block.tokens)
        span = Span.of(line, block.step, len(line))
        return Work(lambda said: self._judging.answer(block, said), span, peer=self._peer)

    def _follow(self, block: wire.Block) -> bool:
        """Bring the text to where the block begins; False if the block follows another text."""
        base = block.step - len(block.decided)
        if base <= len(self._line):
            text = Line(self._line.hashes[base], block.decided)
            if text.hash & LOW_BITS == block.prefix_hash:
                self._line.replace_from(base, block.decided)
                self._dropped = 0
                return True
        self._dropped += 1
        if self._dropped >= MAX_OUTSTANDING and self._peer is not None:
            reason = f"{self._dropped} blocks in a row follow another text"
            self._out.leave.append(Leave(self._peer, Reason.ERROR, reason))
        return False

    def done(self, work: Work, result: Any, seconds: float, now: float) -> Effects:
        self._work = None
        if isinstance(result, ReadBlock):
            self._block = result
            if self._under_way is not None:
                under = self._under_way
                self._under_way = _UnderWay(under.message, under.came_s, now)
        elif self._block is not None and self._under_way is not None:
            block, under = self._block, self._under_way
            self._block = self._under_way = None
            self._heard_s = now
            if not self._over:
                self._reply(block, result, under, seconds)
            self._take_next()
        return self._effects()

    def dropped(self, work: Work, seconds: float, now: float) -> Effects:
        self._work = self._block = self._under_way = None
        self._take_next()
        return self._effects()

    def _reply(
        self,
        block: ReadBlock,
        answer: Judgement | InPlace | Uploads,
        under_way: _UnderWay,
        seconds: float,
    ) -> None:
        line, step, round_ = self._line, block.step, under_way.message.round
        verify_us = int(seconds * 1e6)
        self._out.events.append(events.ForwardDone(step, len(block.tokens) + 1, seconds))
        reply: wire.SessionMessage
        if isinstance(answer, Uploads):
            line.cut(step)
            reply = wire.Upload(self._session, round_, answer.relevance, verify_us, answer.payloads)
        else:
            place = step if isinstance(answer, InPlace) else step + answer.accepted
            line.replace_from(place, [answer.token])
            reply = wire.Verdict(self._session, round_, answer.accepted, answer.token, verify_us)
            self._out.events.append(
                events.BlockJudged(
                    round_,
                    len(block.tokens),
                    answer.accepted,
                    answer.token,
                    under_way.since_s - under_way.came_s,
                    seconds,
                )
            )
        if self._peer is not None:
            self._out.send.append((self._peer, reply))

    def _finish(self) -> Finish:
        """Why the session ended, as far as this side can know it."""
        if not set(self._question.stop_tokens).isdisjoint(self._line.tokens):
            return Finish.STOP
        complete = len(self._line) >= self._question.max_tokens
        return Finish.LENGTH if complete else Finish.CANCELLED

    def _effects(self) -> Effects:
        out, self._out = self._out, Effects()
        return out
