"""The device's part of modes speculative and sprinter: drafts blocks that one cloud verifies.

    draft --block complete--> Block out --Verdict or Target in--> decided, and draft on

A `Drafting` has what differs by mode: what is drafted, and when a block is complete. `BlockDrafter`
sends blocks, applies verdicts in order, and continues if the cloud is lost (SPEC 2, 4).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from typing_extensions import override

from dragonrt.modes.blocks import Advance, Block, DecidedDraft
from dragonrt.modes.messages import Target, Verdict
from dragonrt.modes.mode import Finish, ModeError, Postprocess, Prepared, Span, Work, finish_of
from dragonrt.modes.peering import Peered, Peering
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Resources, Settings
from dragonrt.traces import events
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import End


class Drafting(ABC):
    """How a device drafts in one mode: it requests computations, and applies their results.

    `prefix` has the `decided` tokens, then drafts; `sent` has blocks that await verdicts. A
    BlockDrafter passes a result to `take_draft` or, without a cloud, to `decide_alone`.
    """

    hidden = False  # whether drafting reads hidden states
    controlled = False  # whether blocks are planned by the uplink's rate
    rate: Callable[[float], float] | None = None  # that rate in bit/s at a time, if it is known

    def __init__(self, question: Question) -> None:
        self.question = question
        self.prefix = TokenPrefix(start_hash(question.seed), question.accepted)
        self.decided = len(question.accepted)
        self.sent: deque[Block] = deque()

    def prepared(self, prepared: Prepared) -> None:
        """Keep the question's and documents' tokens, once known, if drafts are copied from them."""
        return

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether a draft can be computed now; if not, the cloud must send a message first."""

    def work(self, rate: float) -> Work:
        """Return the Work, forward and postprocessing, that drafts next; uplink `rate` is bit/s."""
        return self.work_after_prefix(self.postprocess(rate))

    def work_after_prefix(self, postprocess: Postprocess) -> Work:
        """Return the Work that applies `postprocess` to the model's prediction after the prefix."""
        length = len(self.prefix)
        return Work(postprocess, Span.of(self.prefix, length, length, hidden=self.hidden))

    @abstractmethod
    def postprocess(self, rate: float) -> Postprocess:
        """Return a function from predictions to drafts; uplink `rate` (bit/s) may limit them."""

    @abstractmethod
    def take_draft(self, result: Any) -> Advance:
        """Append `result`, the drafts computed by the Work of `work`; return what changed."""

    @abstractmethod
    def take_verdict(self, accepted: int, token: int) -> Advance:
        """Decide `accepted` drafts of the oldest sent block, then `token`; return what changed.

        Raises ModeError if the verdict does not fit what was drafted, or contradicts a decision.
        """

    def take_target(self, step: int, prefix_hash: int, token: int) -> Advance:
        """Decide `token`, which the cloud decoded at `step` without a block; return what changed.

        Raises ModeError if `prefix_hash` is of another text, or if only verdicts may decide.
        """
        raise ModeError("a Target has no place where verdicts decide alone")

    @abstractmethod
    def postprocess_alone(self) -> Postprocess:
        """Return the function that chooses the next token from a prediction without the cloud."""

    def decide_alone(self, result: int) -> Advance:
        """Append `result`, a token chosen without the cloud, and decide it; return what changed."""
        self.prefix.append(result)
        return Advance(self.decide([DecidedDraft(result, None)]))

    def rewind(self) -> None:
        """Drop all undecided drafts and sent blocks, because the session with the cloud is over."""
        self.prefix.cut(self.decided)
        self.sent.clear()

    # The text.

    @property
    def finish(self) -> Finish | None:
        return self.finish_at(self.decided)

    def finish_at(self, length: int) -> Finish | None:
        """Return why the prefix's first `length` tokens are a complete answer; None if not."""
        return finish_of(self.question, self.prefix.tokens, length)

    def decide(self, tokens: Iterable[DecidedDraft]) -> tuple[DecidedDraft, ...]:
        """Mark the prefix's next `tokens` as decided until the answer ends; return those marked."""
        taken = []
        for each in tokens:
            if self.finish is not None:
                break
            self.decided += 1
            taken.append(each)
        return tuple(taken)


class BlockDrafter(Peered):
    """The device's state machine in speculative and sprinter: sends blocks, applies verdicts."""

    def __init__(self, drafting: Drafting, settings: Settings, resources: Resources) -> None:
        super().__init__()
        self._drafting = drafting
        useless, alone_as = "the cloud has not verified a block in", "from the draft model"
        how = settings.on_loss, resources.timeouts
        self._peering = Peering(self, *how, useless=useless, alone_as=alone_as)
        self._vocabulary = resources.vocabulary
        self.times_bandwidth = drafting.controlled and drafting.rate is None
        self._bits_per_s = float("inf")
        self._round = 0
        self._given_up: set[int] = set()
        self._reading: Work | None = None
        self._dead = False  # the text that is being read is gone
        self._draft_s = 0.0
        self._decision_s = 0.0
        self._now = 0.0

    # What the driver asks.

    @property
    @override
    def decided(self) -> Sequence[int]:
        return self._drafting.prefix.tokens[: self._drafting.decided]

    @override
    def _measured(self, rtt_s: float, bits_per_s: float | None) -> None:
        self._bits_per_s = bits_per_s or float("inf")

    @property
    @override
    def idle(self) -> bool:
        return self._reading is None and not self._drafting.ready

    owed = idle

    # The cloud comes and goes.

    @override
    def _prepared(self, prepared: Prepared, now: float) -> None:
        self._decision_s = now
        self._drafting.prepared(prepared)
        self._check_finished()
        self._peering.begin(now)

    @override
    def _joined(self, peer: str, session: int, now: float) -> None:
        if self.ready:
            self.drop_drafts(now)
        self._peering.joined(peer, session, now)
        self._given_up.clear()
        self._round = 0

    @override
    def _left(self, peer: str, end: End, returns: bool, now: float) -> None:
        self._peering.lost(end, returns, now)

    @override
    def drop_drafts(self, now: float) -> None:
        self._end_blocks()
        self._drafting.rewind()
        self._preempt()  # even where the text is the same: the block that it began is forgotten

    def _check_finished(self) -> None:
        finish = self._drafting.finish
        if finish is not None:
            self._end_blocks()
            self._drafting.sent.clear()
            self._end(finish)

    def _end_blocks(self) -> None:
        """Report what is accepted of blocks that no verdict will come for."""
        for block in self._drafting.sent:
            decided = min(block.count, self._drafting.decided - block.step)
            if decided > 0:
                self.emit(events.BlockOutrun(block.round, decided))

    # Drafting.

    @override
    def wanted(self) -> Work | None:
        if not self.ready or self.finish is not None or self._reading is not None:
            return None
        drafting = self._drafting
        if self._peering.alone:
            self._reading = drafting.work_after_prefix(drafting.postprocess_alone())
        elif self._peering.peer is not None and drafting.ready:
            known = self._drafting.rate
            rate = self._bits_per_s if known is None else known(self._now)
            self._reading = drafting.work(rate)
        self._dead = False
        return self._reading

    @override
    def _computed(self, work: Work, result: Any, seconds: float, now: float) -> None:
        self._now, self._reading = now, None
        self._draft_s += seconds
        if work.span is not None:
            self.emit(events.ForwardDone(work.span.first, 1, seconds))
        if self.finish is not None or self._dead:
            return
        self._peering.progress_s = now
        if self._peering.alone:  # as when the work began: it is dead if that has changed
            waited = now - self._decision_s
            self._take(self._drafting.decide_alone(result), "own", waited, now)
        else:
            self._take(self._drafting.take_draft(result), "own", 0.0, now)

    @override
    def _preempted(self, work: Work, seconds: float, now: float) -> None:
        self._reading, self._now = None, now
        self.emit(events.ForwardStopped(_step(work), seconds))

    def _preempt(self) -> None:
        work = self._reading
        if work is not None and not self._dead:
            self._dead = True
            if work.span is not None:
                self._out.preempt = True
                self.emit(events.ForwardPreempted(work.span.first))

    # Blocks out, verdicts in.

    @override
    def _received(self, peer: str, message: wire.SessionMessage, now: float) -> None:
        match message:
            case wire.Working() | wire.Opened():
                self._peering.works(now)
            case Verdict():
                self._receive_verdict(message, now)
            case Target():
                self._receive_target(message, now)
            case _:
                raise ModeError(f"a {type(message).__name__} has no place in a session of blocks")

    def _receive_verdict(self, message: Verdict, now: float) -> None:
        number = message.round
        if number in self._given_up:
            self._given_up.remove(number)
            return
        drafting = self._drafting
        under_way = list(drafting.sent)
        if not under_way or number != under_way[0].round:
            raise ModeError(f"an answer to block {number} came, which is not the next one due")
        block = under_way.pop(0)
        self._given_up = {each for each in self._given_up if each > number}
        accepted, token = message.accepted, message.token
        if accepted > block.count:
            raise ModeError(f"a verdict accepts {accepted} tokens of a block of {block.count}")
        self._hear(token, now)
        advance = drafting.take_verdict(accepted, token)
        waited_s, verify_s = now - block.sent_s, message.verify_us / 1e6
        self.emit(events.BlockJudged(number, block.count, accepted, token, waited_s, verify_s))
        self.emit(*(events.ThresholdMoved(*each) for each in block.thresholds(accepted)))
        self._take_target(advance, under_way, waited_s, now)

    def _receive_target(self, message: Target, now: float) -> None:
        drafting, step, token = self._drafting, message.step, message.token
        under_way = list(drafting.sent)
        self._hear(token, now)
        advance = drafting.take_target(step, message.prefix_hash, token)
        self.emit(events.TargetDecoded(step, token))
        for block, verdict in zip(under_way, advance.verdicts, strict=False):
            self.emit(events.BlockJudged(block.round, *verdict, now - block.sent_s, 0.0))
        # A cloud may decide while this side still reads the question: nothing has waited for it.
        waited_s = now - self._decision_s if self.ready else 0.0
        self._take_target(advance, under_way, waited_s, now)

    def _hear(self, token: int, now: float) -> None:
        if token >= self._vocabulary:
            raise ModeError(f"token {token} is beyond the vocabulary")
        self._now = self._peering.progress_s = now
        self._peering.useful = True

    def _take_target(
        self, advance: Advance, under_way: Sequence[Block], waited_s: float, now: float
    ) -> None:
        if advance.cut:  # want no answers to them any more
            self._given_up |= {block.round for block in under_way}
        self._take(advance, "target", waited_s, now)
        if advance.cut or self.finish is not None:
            self._preempt()

    def _take(self, advance: Advance, cause: events.Cause, waited_s: float, now: float) -> None:
        drafting = self._drafting
        first = drafting.decided - len(advance.decided)
        for step, decided in enumerate(advance.decided, start=first):
            share = float(decided.accepted is True or cause == "own")
            token, stands = decided
            # What the cloud verified depends on the cloud's model alone.
            evidence = 0.0 if cause == "target" else None
            self.emit(
                events.TokenDecided(
                    step, token, stands, None, cause, waited_s, share, evidence=evidence
                )
            )
            waited_s, self._decision_s = 0.0, now
        if advance.block is not None and self._peering.peer is not None:
            self._send(advance.block, now)
        self._check_finished()

    def _send(self, block: Block, now: float) -> None:
        self._round += 1
        block.sent_s = now
        self._peering.asked(now)
        block.round = self._round
        self._peering.send(block.message(self._peering.session))
        numbers = block.round, block.step, block.count, block.bits
        self.emit(events.BlockSent(*numbers, self._draft_s))
        self._draft_s = 0.0


def _step(work: Work) -> int:
    return work.span.first if work.span is not None else 0
