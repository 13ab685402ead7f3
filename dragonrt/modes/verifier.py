"""The cloud's part of every mode in which the device drafts blocks (SPEC 2 - 4).

    block --follows the text--> read --its tokens--> one forward --verified--> Verdict or Upload
    no block waits --tokens decoded--> Target

Blocks wait in a bounded inbox and are answered in order: by a Verdict (accepted drafts, next token)
or a worker's Uploads (distributions). If the mode permits, the cloud decodes while no block waits,
and sends a Target with each token. Blocks that contradict the decided tokens are not answered.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from dragonrt.distributions import Codec, block_steps, decode_block
from dragonrt.modes.blocks import Judged, ReadBlock, Uploads
from dragonrt.modes.messages import Block, Target, Upload, Verdict
from dragonrt.modes.mode import (
    Finish,
    Leave,
    Mode,
    ModeError,
    Prediction,
    Prepared,
    Span,
    Work,
    file_evidence,
)
from dragonrt.modes.prefix import LOW_BITS, Lookup, TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import ModeEntry, R, Resources, S
from dragonrt.traces import events
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import End, Reason

MAX_OUTSTANDING = 8
"""Blocks of one session that may be under way and unanswered."""
INBOX = 2 * MAX_OUTSTANDING
"""Blocks that may wait here: those under way, behind others that a verdict has made useless."""
LARGEST_READING = 2**27
"""Probabilities in one forward: positions times documents times vocabulary (512 MiB of float32)."""


class Judging(ABC):
    """How a cloud decodes and verifies blocks in one mode; called outside the event loop."""

    adds_token = True
    """Whether a verdict's token follows an accepted block; otherwise it replaces its only one."""
    decodes = False
    """Whether the cloud decodes single tokens (`decoding`) while no block waits."""
    looks_up = False
    """Whether those are read along what prompt lookup finds."""
    codec: Codec

    def read(self, block: Block) -> ReadBlock:
        """Decode the payload of a Block message. Raises DragonError if it cannot be decoded."""
        size, longest = len(block.payload), self.codec.longest
        if size > longest:
            raise ModeError(
                f"a block of {size} bytes takes too long to read: send at most {longest}"
            )
        steps = block_steps(block.step, block.count, block.resolutions)
        return ReadBlock(block.step, *decode_block(self.codec, block.payload, steps))

    @abstractmethod
    def answer(self, block: ReadBlock, predictions: Sequence[Prediction]) -> Judged:
        """Return the answer to a block: a VerifyResult or, in mode federated, Uploads.

        `predictions[n]` is from this side's model, at step `block.step + n`. A VerifyResult decides
        the accepted tokens and one more. After Uploads (distributions), the device decides.
        """

    def decoding(self, step: int, prediction: Prediction) -> int:
        """Choose the token at `step`, on a cloud that decodes by itself while no block waits."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that waits or, from `since_s` on, is verified; the text verifies `known` tokens."""

    message: Block
    came_s: float
    read: ReadBlock | None
    since_s: float = 0.0
    known: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    """An answer, or tokens decoded while the guess is right; each token's evidence, in bits."""

    answer: Judged | list[int]
    files: list[tuple[float, ...]]


class BlockVerifier(Mode):
    """The Mode (state machine of an answer) of a cloud that verifies a device's blocks in order."""

    def __init__(self, judging: Judging, question: Question, resources: Resources) -> None:
        super().__init__()
        self._peer: str | None = None
        self._session = 0
        self._question = question
        self._judging = judging
        self._vocabulary = resources.vocabulary
        self._timeouts = resources.timeouts
        self._prefix = TokenPrefix(start_hash(question.seed), question.accepted)
        self._inbox: deque[_Block] = deque()
        self._drafted = -1  # up to where the newest block goes
        self._dropped = 0
        self._round = 0
        self._current: _Block | None = None
        self._work: Work | None = None
        self._files: Sequence[int] = ()
        self._lookup: Lookup | None = None
        self._heard_s = 0.0

    def _send(self, message: wire.SessionMessage) -> None:
        if self._peer is not None:
            self.send_to(self._peer, message)

    def _end_session(self, end: End) -> None:
        if self._peer is not None:
            self.leave(Leave(self._peer, end))

    # What the driver asks.

    @property
    @override
    def decided(self) -> Sequence[int]:
        return self._prefix.tokens

    @override
    def deadline(self) -> float | None:
        idle = self.ready and self.finish is None and self._current is None and not self._inbox
        return self._heard_s + self._timeouts.idle_s if idle else None

    @override
    def _prepared(self, prepared: Prepared, now: float) -> None:
        self.ready, self._heard_s, self._files = True, now, prepared.files
        if prepared.exact_blocks and self._judging.looks_up:
            self._lookup = Lookup((prepared.question, *prepared.texts), len(prepared.files))
        self._take_next(now)

    @override
    def _joined(self, peer: str, session: int, now: float) -> None:
        self._peer, self._session = peer, session

    @override
    def _left(self, peer: str, end: End, returns: bool, now: float) -> None:
        """End as the answer did, as far as this side can know it."""
        complete = len(self._prefix) >= self._question.max_tokens
        stopped = not set(self._question.stop_tokens).isdisjoint(self._prefix.tokens)
        self._end(Finish.STOP if stopped else Finish.LENGTH if complete else Finish.CANCELLED)

    @override
    def _timed_out(self, now: float) -> None:
        limit = self.deadline()
        if limit is not None and now >= limit:
            self._end_session(End(Reason.MUTE, f"no block came for {self._timeouts.idle_s:g} s"))

    @override
    def _received(self, peer: str, message: wire.SessionMessage, now: float) -> None:
        if not isinstance(message, Block):
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
        rows = max(1, question.most_documents)
        if (message.count + 1) * rows * self._vocabulary > LARGEST_READING:
            raise ModeError(
                f"a block of {message.count} tokens over {rows} documents takes too much memory: "
                "send shorter blocks or ask for fewer documents"
            )
        read = None
        if self._judging.decodes:
            if message.decided:
                raise ModeError("a block brings tokens where the cloud decodes by itself")
            read = self._judging.read(message)
            if message.step <= self._drafted:  # drafted anew there: the device has cut its prefix
                self._inbox.clear()
                self._dropped = 0
            self._drafted = message.step + message.count
        self._round, self._heard_s = message.round, now
        self._inbox.append(_Block(message, now, read))
        self._take_next(now)

    # The work on one block after the other.

    @override
    def wanted(self) -> Work | None:
        if self.finish is not None or self._work is not None:
            return None
        current = self._current
        if current is None:
            self._work = self._decoded()
        elif current.read is None:
            self._work = Work(lambda _: self._judging.read(current.message), peer=self._peer)
        else:
            self._work = self._judged(current.read)
        return self._work

    def _take_next(self, now: float) -> None:
        if self._judging.decodes and not self._prefix.tokens:
            return  # the first token needs no forward: nobody waits for a block's
        while self._inbox and self._current is None and not self._out.leave:
            if not self.ready or self.finish is not None:
                return
            waiting = self._inbox[0]
            if not self._follow(waiting, now):
                self._inbox.popleft()
            elif self._work is not None and self._known(waiting) <= waiting.message.count:
                return  # until the tokens under way are decoded
            else:
                self._begin(self._inbox.popleft(), now)

    def _known(self, waiting: _Block) -> int:
        # Tokens there are already from where a block begins.
        return len(self._prefix) - waiting.message.step

    def _begin(self, waiting: _Block, now: float) -> None:
        """Verify a block, as far as the decided text does not."""
        message, read, tokens = waiting.message, waiting.read, self._prefix.tokens
        under_way = replace(waiting, since_s=now)
        known, count = self._known(waiting), message.count
        if read is None:
            self._current = under_way
        elif known > count:
            self._send_verdict(under_way, count, count, tokens[message.step + count], 0.0)
        else:
            rest = ReadBlock(len(tokens), read.tokens[known:], read.q)
            self._current = replace(under_way, read=rest, known=known)

    def _judged(self, block: ReadBlock) -> Work:
        prefix = self._prefix
        prefix.replace_from(block.step, block.tokens)
        span = Span.of(prefix, block.step, len(prefix))
        judging, files = self._judging, self._files

        def postprocess(predictions: Sequence[Prediction]) -> _Found:
            answer, tokens = judging.answer(block, predictions), block.tokens
            if not isinstance(answer, Uploads):  # as drafted there: nothing is decided yet
                kept = answer.accepted if judging.adds_token else 0
                tokens = [*tokens[:kept], answer.token]
            pairs = zip(predictions, tokens, strict=False)
            return _Found(answer, [file_evidence(each, files, token) for each, token in pairs])

        return Work(postprocess, span, peer=self._peer)

    def _decoded(self) -> Work | None:
        """The next tokens without a block, unless the answer is complete."""
        prefix, question = self._prefix, self._question
        if not self._judging.decodes or self._peer is None or not self.ready:
            return None
        step = len(prefix)
        # A verdict gives one token more behind a block that ends with a stop token.
        stopped = not set(question.stop_tokens).isdisjoint(prefix.tokens[-2:])
        if stopped or step >= question.max_tokens:
            return None
        judging, files, guess = self._judging, self._files, list[int]()
        if self._lookup is not None:
            room = question.max_tokens - step - 1
            guess = self._lookup.guess(prefix.tokens, room, question.stop_tokens)

        def postprocess(predictions: Sequence[Prediction]) -> _Found:
            found = _Found([], [])
            for each in predictions:
                count = len(found.files)
                if found.answer != guess[:count]:
                    break
                token = judging.decoding(step + count, each)
                found.answer.append(token)
                found.files.append(file_evidence(each, files, token))
            return found

        return Work(postprocess, Span.of(prefix, step, step), guess, peer=self._peer)

    def _follow(self, waiting: _Block, now: float) -> bool:
        """Bring the text to the block's start; False if the block contradicts the text."""
        block = waiting.message
        base = block.step - len(block.decided)
        if base <= len(self._prefix):
            text = TokenPrefix(self._prefix.hashes[base], block.decided)
            if text.hash & LOW_BITS == block.prefix_hash:
                self._dropped = 0
                if waiting.read is not None:
                    return self._agrees(block, waiting.read, now - waiting.came_s)
                self._prefix.replace_from(base, block.decided)
                return True
        self._dropped += 1
        if self._dropped >= MAX_OUTSTANDING:
            why = f"{self._dropped} blocks in a row follow another text"
            self._end_session(End(Reason.PROTOCOL, why))
        return False

    def _agrees(self, block: Block, read: ReadBlock, waited_s: float) -> bool:
        """Whether no token contradicts the text; else the device knows by that what is refused."""
        known, count = self._prefix.tokens[block.step :], len(read.tokens)
        for accepted, (drafted, token) in enumerate(zip(read.tokens, known, strict=False)):
            if drafted != token:
                self.emit(events.BlockJudged(block.round, count, accepted, token, waited_s, 0.0))
                return False
        return True

    @override
    def _computed(self, work: Work, result: Any, seconds: float, now: float) -> None:
        self._work, block = None, self._current
        if isinstance(result, _Found):
            step = len(self._prefix) if block is None or block.read is None else block.read.step
            for place, bits in enumerate(result.files):
                self.evidence.decide(step + place, bits)
            result = result.answer
        if isinstance(result, list):
            self._go_on(work, result, seconds, now)
        elif block is not None and isinstance(result, ReadBlock):
            self._current = replace(block, read=result, since_s=now)
        elif block is not None and block.read is not None:
            self._current = None
            self._heard_s = now
            if self.finish is None:
                self._reply(block, block.read, result, seconds)
            self._take_next(now)

    @override
    def _preempted(self, work: Work, seconds: float, now: float) -> None:
        self._work = None
        if self._current is None:
            self.emit(events.ForwardStopped(len(self._prefix), seconds))
        self._current = None
        self._take_next(now)

    def _go_on(self, work: Work, tokens: list[int], seconds: float, now: float) -> None:
        """Append the tokens that were decoded without a block."""
        prefix = self._prefix
        self.emit(events.ForwardDone(len(prefix), len(tokens), seconds))
        if self._peer is not None and self.finish is None:
            for token in tokens:
                step, prefix_hash = len(prefix), prefix.hash
                prefix.append(token)
                self.emit(events.TargetDecoded(step, token))
                self._send(Target(self._session, step, prefix_hash, token, "cloud"))
            self._dropped = 0
            self._take_next(now)

    def _reply(self, block: _Block, read: ReadBlock, answer: Judged, seconds: float) -> None:
        prefix, step, count = self._prefix, read.step, len(read.tokens)
        self.emit(events.ForwardDone(step, count + 1, seconds))
        if isinstance(answer, Uploads):
            prefix.cut(step)
            verify_us, round_ = int(seconds * 1e6), block.message.round
            self._send(Upload(self._session, round_, answer.relevance, verify_us, answer.payloads))
        else:
            place = step + answer.accepted if self._judging.adds_token else step
            prefix.replace_from(place, [answer.token])
            accepted = block.known + answer.accepted
            self._send_verdict(block, block.known + count, accepted, answer.token, seconds)

    def _send_verdict(
        self, block: _Block, count: int, accepted: int, token: int, seconds: float
    ) -> None:
        round_, waited_s = block.message.round, block.since_s - block.came_s
        self.emit(events.BlockJudged(round_, count, accepted, token, waited_s, seconds))
        self._send(Verdict(self._session, round_, accepted, token, int(seconds * 1e6)))


class VerifiedMode(ModeEntry[S, R]):
    """A ModeEntry whose cloud verifies the device's blocks by the Judging that `judging` makes."""

    judging: Callable[[Question, S, R], Judging]

    @override
    def cloud(self, question: Question, settings: S, resources: R) -> BlockVerifier:
        return BlockVerifier(self.judging(question, settings, resources), question, resources)
