"""The device's part of the modes in which it drafts blocks and one cloud verifies them (SPEC 2, 4).

    draft --block complete--> Block out --Verdict or Target in--> decided, and draft on
    the cloud is   connected --left--> waiting or alone --joined--> connected

What is drafted and when it is sent is the mode's `Drafting`; this machine sends blocks, takes their
verdicts in order, and goes on without the cloud where there is none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dragonrt.modes.block_drafting import Advance, Drafting, EncodedBlock, TargetFollowing
from dragonrt.modes.mode import (
    ModeError,
    OnLoss,
    Prepared,
    Span,
    Work,
)
from dragonrt.modes.peers import PeerTracking
from dragonrt.modes.prefix import LOW_BITS
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces import events
from dragonrt.wire import messages as wire


@dataclass(frozen=True, slots=True)
class _Sent:
    step: int
    count: int
    sent_s: float


@dataclass(slots=True)
class _Reading:
    """The forward under way: to decide `alone` or to draft; `dead` where that is gone by now."""

    work: Work
    alone: bool
    dead: bool = False


class BlockDrafter(PeerTracking):
    """Implements Mode for the device.

    `rate` gives the uplink's bit/s at a time where it is known; otherwise, with `times_bandwidth`,
    the link is probed.
    """

    verifies = True
    _useless = "the cloud has not verified a block in"
    _alone_as = "with the draft model"

    def __init__(
        self,
        drafting: Drafting,
        on_loss: OnLoss,
        vocabulary: int,
        timeouts: Timeouts = USUAL,
        *,
        times_bandwidth: bool = False,
        rate: Callable[[float], float] | None = None,
    ) -> None:
        super().__init__(on_loss, timeouts)
        self._drafting = drafting
        self._vocabulary = vocabulary
        self.times_bandwidth = times_bandwidth and rate is None
        self._rate = rate
        self._bits_per_s = float("inf")
        # Blocks under way at the cloud.
        self._round = 0
        self._sent: dict[int, _Sent] = {}
        self._given_up: set[int] = set()
        # Under way, and since when.
        self._reading: _Reading | None = None
        self._draft_s = 0.0
        self._decision_s = 0.0
        self._now = 0.0

    # What the driver asks.

    @property
    def decided(self) -> Sequence[int]:
        return self._drafting.line.tokens[: self._drafting.decided]

    def _measured(self, rtt_s: float, bits_per_s: float | None) -> None:
        self._bits_per_s = bits_per_s or float("inf")

    @property
    def _idle(self) -> bool:
        return self._reading is None and not self._drafting.ready

    @property
    def _owes(self) -> bool:
        return self._idle

    # The cloud comes and goes.

    def _prepared(self, prepared: Prepared, now: float) -> None:
        self._decision_s = now
        self._check_finished()
        self._prepare(now)

    def _joined(self, peer: str, session: int, now: float) -> None:
        """Go on with the cloud from the decided tokens."""
        if self._ready:
            self._part(now)
        self._join(peer, session, now)
        self._sent.clear()
        self._given_up.clear()
        self._round = 0

    def _part(self, now: float) -> None:
        """Nobody will verify what is drafted and not decided."""
        self._end_blocks()
        self._drafting.rewind()
        self._preempt()  # even where the text is the same: the block that it began is forgotten

    def _go_on_alone(self, now: float) -> None:
        """`wanted` asks for what the draft model decides by itself."""

    def _check_finished(self) -> None:
        finish = self._drafting.finish
        if finish is not None:
            self._end_blocks()
            self._end(finish)

    def _end_blocks(self) -> None:
        """No verdict will come: of what is sent those tokens stand that are decided."""
        for number, sent in self._sent.items():
            stand = min(sent.count, self._drafting.decided - sent.step)
            if stand > 0:
                self._out.events.append(events.BlockOutrun(number, stand))
        self._sent.clear()

    # Drafting.

    def wanted(self) -> Work | None:
        if not self._ready or self._finish is not None or self._reading is not None:
            return None
        drafting, line = self._drafting, self._drafting.line
        if self._alone:
            head = drafting.head_alone()
        elif self._peer is not None and drafting.ready:
            rate = self._bits_per_s if self._rate is None else self._rate(self._now)
            head = drafting.head(rate)
        else:
            return None
        work = Work(head, Span.of(line, len(line), len(line)))
        self._reading = _Reading(work, self._alone)
        return work

    def _computed(self, work: Work, result: Any, seconds: float, now: float) -> None:
        self._now = now
        reading, self._reading = self._reading, None
        if reading is None or work.span is None:
            return
        self._draft_s += seconds
        self._out.events.append(events.ForwardDone(work.span.first, 1, seconds))
        if self._finish is not None or reading.dead:
            return
        self._progress_s = now
        if reading.alone:
            waited = now - self._decision_s
            self._take(self._drafting.decide_alone(result), "own", waited, now)
        else:
            self._take(self._drafting.take_draft(result), "own", 0.0, now)

    def _preempted(self, work: Work, seconds: float, now: float) -> None:
        self._reading, self._now = None, now
        if work.span is not None:
            self._out.events.append(events.ForwardStopped(work.span.first, seconds))

    def _preempt(self) -> None:
        """What is being read is of no use any more."""
        reading = self._reading
        if reading is not None and reading.work.span is not None and not reading.dead:
            reading.dead = True
            self._out.events.append(events.ForwardPreempted(reading.work.span.first))
            self._out.preempt = True

    # Blocks out, verdicts in.

    def _received(self, peer: str, message: wire.SessionMessage, now: float) -> None:
        match message:
            case wire.Working() | wire.Opened():
                self._greeted(now)
            case wire.Verdict():
                self._receive_verdict(message, now)
            case wire.Target() if isinstance(self._drafting, TargetFollowing):
                self._receive_target(message, self._drafting, now)
            case wire.Upload():
                raise ModeError("an upload came where a verdict was due")
            case _:
                raise ModeError(f"a {type(message).__name__} has no place in a session of blocks")

    def _receive_verdict(self, message: wire.Verdict, now: float) -> None:
        number = message.round
        if number in self._given_up:
            self._given_up.remove(number)
            return
        if number != next(iter(self._sent), None):
            raise ModeError(f"an answer to block {number} came, which is not the next one due")
        sent = self._sent.pop(number)
        self._given_up = {each for each in self._given_up if each > number}
        if message.accepted > sent.count:
            raise ModeError(
                f"a verdict accepts {message.accepted} tokens of a block of {sent.count}"
            )
        if message.token >= self._vocabulary:
            raise ModeError(f"token {message.token} is beyond the vocabulary")
        self._now = self._progress_s = now
        self._useful = True
        advance = self._drafting.take_verdict(message.accepted, message.token)
        waited_s = now - sent.sent_s
        self._out.events.append(
            events.BlockJudged(
                number,
                advance.judged,
                message.accepted,
                message.token,
                waited_s,
                message.verify_us / 1e6,
            )
        )
        self._take(advance, "target", waited_s, now)
        if advance.cut or self._finish is not None:
            self._preempt()

    def _receive_target(self, message: wire.Target, drafting: TargetFollowing, now: float) -> None:
        if message.token >= self._vocabulary:
            raise ModeError(f"token {message.token} is beyond the vocabulary")
        self._now = self._progress_s = now
        self._useful = True
        step, token = message.step, message.token
        advance = drafting.take_target(step, message.prefix_hash, token)
        self._out.events.append(events.TargetDecoded(step, token))
        sent = list(self._sent.items())
        for (number, each), verdict in zip(sent, advance.verdicts, strict=False):
            self._out.events.append(events.BlockJudged(number, *verdict, now - each.sent_s, 0.0))
        # A cloud may decide while this side still reads the question: nothing has waited for it.
        waited_s = now - self._decision_s if self._ready else 0.0
        self._take(advance, "target", waited_s, now)
        if advance.cut or self._finish is not None:
            self._preempt()

    def _take(self, advance: Advance, cause: events.Cause, waited_s: float, now: float) -> None:
        """Say what was decided, send what is to be sent."""
        out, drafting = self._out, self._drafting
        if advance.cut:  # want no answers to the blocks under way any more
            self._given_up |= self._sent.keys()
            self._sent.clear()
        for step, beta, dropped in advance.thresholds:
            out.events.append(events.ThresholdMoved(step, beta, dropped))
        first = drafting.decided - len(advance.decided)
        for step, decided in enumerate(advance.decided, start=first):
            share = float(decided.stands is True or cause == "own")
            out.events.append(
                events.TokenDecided(
                    step,
                    decided.token,
                    decided.stands,
                    None,
                    cause,
                    waited_s,
                    share,
                    # What the cloud verified is said by the cloud alone.
                    evidence=0.0 if cause == "target" else None,
                )
            )
            waited_s, self._decision_s = 0.0, now
        if advance.block is not None and self._peer is not None:
            self._send(advance.block, now)
        self._check_finished()

    def _send(self, block: EncodedBlock, now: float) -> None:
        if self._peer is None:
            return
        self._round += 1
        self._owed_s = now
        self._sent[self._round] = _Sent(block.step, block.count, now)
        message = wire.Block(
            session=self._session,
            round=self._round,
            step=block.step,
            prefix_hash=block.prefix_hash & LOW_BITS,
            count=block.count,
            resolutions=block.resolutions,
            decided=block.decided,
            payload=block.payload,
        )
        self._out.send.append((self._peer, message))
        self._out.events.append(
            events.BlockSent(
                self._round,
                block.step,
                block.count,
                block.bits,
                self._draft_s,
                len(block.decided),
                block.distributions,
            )
        )
        self._draft_s = 0.0
