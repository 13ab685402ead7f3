"""The device's side of one answer in the modes with blocks: a mode's drafting around one cloud."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dragonrt.runtime import outcome
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.drafter import PreemptedError
from dragonrt.runtime.modes.blocks.counts import BlockCounts
from dragonrt.runtime.modes.blocks.drafting import Advance, Decided, Drafting
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.modes.blocks.session import BlockAnswer, BlockSession
from dragonrt.runtime.modes.blocks.tracing import trace_open
from dragonrt.runtime.outcome import Decision, Finish, OnDecision, OnNotice, Turn
from dragonrt.runtime.plan import PATIENCE_S
from dragonrt.runtime.predictor import Predictor
from dragonrt.runtime.preparing import Preparer, trace_ready
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason

OnLoss = Literal["alone", "wait"]


@dataclass(slots=True, kw_only=True)
class Answer(outcome.Answer):
    """The answer of a device that drafts and a cloud that verifies."""

    plan: BlockPlan
    counts: BlockCounts


class BlockAsking:
    """Drafts, sends what the mode's `drafting` wants sent, and decides by the cloud's verdicts.

    `on_loss` says what happens between losing the cloud and having it back: "alone" decides by the
    draft model meanwhile, "wait" decides nothing, so that the text stays what it would have been.
    `rate` gives the uplink's bit/s where drafting depends on it; without it, where `schedules` is
    set, the link is probed.
    """

    def __init__(
        self,
        preparer: Preparer,
        connector: Connector,
        plan: BlockPlan,
        drafting: Drafting,
        *,
        on_decision: OnDecision,
        on_notice: OnNotice,
        on_loss: OnLoss = "alone",
        schedules: bool = False,
        rate: Callable[[], float] | None = None,
    ) -> None:
        self._preparer = preparer
        self._connector = connector
        self._plan = plan
        self._drafting = drafting
        self._show = on_decision
        self._on_notice = on_notice
        self._on_loss = on_loss
        self._schedules = schedules
        self._rate = rate
        self._session: BlockSession | None = None
        self._number = 0
        self._predictor: Predictor | None = None
        self._predicting: tuple[int, int] | None = None
        self._alone = False
        self._may_return = False
        self._loss = "the cloud is not connected"
        self._stopped: Finish | None = None
        self._wake = asyncio.Event()
        self._draining: asyncio.Timeout | None = None
        self._draft_s = 0.0
        self._decision_s = 0.0
        self._question = ""
        self._history: Sequence[Turn] = ()
        self._clock = asyncio.get_running_loop().time
        self.answer = Answer(plan=plan, counts=drafting.counts)

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the answer with the tokens decided so far."""
        self._stopped = self._stopped or reason
        self._wake.set()
        if self._draining is not None and not self._draining.expired():
            self._draining.reschedule(self._clock())
        if self._predictor is not None:
            self._predictor.preempt()

    async def ask(self, question: str, history: Sequence[Turn] = ()) -> Answer:
        """Answer one question; DragonError if this side cannot."""
        self._question, self._history = question, history
        answer = self.answer
        answer.asked_s = self._decision_s = self._clock()
        before = self._connector.traffic()
        await self._connector.reach()
        self._join()
        if self._session is None:
            trace_open(self._preparer.trace, 0, self._plan, 0)
        try:
            prepared = await self._preparer.prepare_predictor(question, history, self._plan)
            vocabulary = self._preparer.vocabulary
            trace_ready(self._preparer.trace, self._number, prepared, vocabulary)
            self._predictor = prepared.model
            answer.device_sources = prepared.sources
            if self._session is None and self._may_return:
                self._join()  # the cloud may have come back while this side prepared
            if self._session is None:
                self._miss()
            while self._finish is None:
                await self._go_on()
            answer.finish = self._finish
        finally:
            self._predictor = None
            session = self._session
            if session is not None:
                answer.rtt_s = session.rtt_s
                answer.cloud_sources = session.sources
                cancelled = answer.finish is Finish.CANCELLED
                self._leave(Reason.CANCELLED if cancelled else Reason.FINISHED)
            finish = self._finish.value if self._finish is not None else "error"
            self._preparer.trace.event(self._number, "close", finish=finish)
        after = self._connector.traffic()
        answer.bytes_sent, answer.bytes_received = after[0] - before[0], after[1] - before[1]
        return answer

    @property
    def _finish(self) -> Finish | None:
        return self._stopped or self._drafting.finish

    async def _go_on(self) -> None:
        """One forward, or one wait for the cloud."""
        if self._session is None and self._may_return and self._connector.connected:
            self._join()
            self._alone = False
            self._preparer.trace.event(self._number, "resume", step=self._drafting.decided)
        if self._session is None and not self._alone:
            await self._wait_for_connection()
        elif self._session is None or self._drafting.ready:
            await self._predict()
        else:
            await self._wait_for_verdict()

    # Drafting.

    async def _predict(self) -> None:
        """One forward of the draft model along the line, and what follows from it."""
        drafting, predictor = self._drafting, self._predictor
        if predictor is None:
            raise ValueError("the side is not prepared yet")
        step, prefix_hash = self._predicting = len(drafting.line), drafting.line.hash
        start_s = self._clock()
        try:
            said = (await predictor.predict(drafting.line, step, step))[0]
        except PreemptedError:
            drafting.counts.preempted += 1
            return
        finally:
            self._predicting = None
        seconds = self._clock() - start_s
        drafting.counts.forwards += 1
        drafting.counts.draft_s += seconds
        self._draft_s += seconds
        self._event("decode", step=step, tokens=1, seconds=round(seconds, 6))
        if self._finish is not None or drafting.line.hash != prefix_hash:
            return
        session = self._session
        if session is not None:
            rate = session.rate if self._rate is None else self._rate()
            self._take(drafting.draft(said, rate), "own", 0.0)
            await self._drain(session)
        elif self._alone:
            self._take(drafting.decide_alone(said), "own", self._clock() - self._decision_s)

    def _take(self, advance: Advance, cause: str, waited_s: float) -> None:
        """Show what was decided, send what is to be sent."""
        if advance.cut and self._session is not None:
            self._session.give_up()
        for step, beta, dropped in advance.thresholds:
            self._event("threshold", step=step, beta=beta, dropped=dropped)
        first = self._drafting.decided - len(advance.decided)
        for step, decided in enumerate(advance.decided, start=first):
            if self._stopped is not None:  # by who was shown the token before
                return
            self._decide(step, decided, cause, waited_s)
            waited_s = 0.0
        block, session = advance.block, self._session
        if block is not None and session is not None:
            number = session.send(block)
            counts = self._drafting.counts
            counts.blocks += 1
            counts.drafted += block.count
            counts.bits += block.bits
            self._event(
                "block",
                round=number,
                step=block.step,
                tokens=block.count,
                bits=block.bits,
                seconds=round(self._draft_s, 6),
            )
            self._draft_s = 0.0

    def _decide(self, step: int, decided: Decided, cause: str, waited_s: float) -> None:
        self._decision_s = self._clock()
        self._drafting.counts.decided += 1
        self._event(
            "decide",
            step=step,
            token=decided.token,
            device=decided.stands,
            cloud=None,
            cause=cause,
            waited=round(waited_s, 6),
        )
        drafted = decided.stands is True or cause == "own"
        decision = Decision(step, decided.token, self._decision_s, float(drafted), None)
        self.answer.decisions.append(decision)
        self._show(decision)

    def _answered(self, message: BlockAnswer, waited_s: float) -> None:
        """A verdict came; the forward under way may have become useless."""
        if not isinstance(message, wire.Verdict):
            raise BlockError("an upload came where a verdict was due")
        drafting = self._drafting
        verify_s, judged = message.verify_us / 1e6, drafting.counts.judged
        advance = drafting.take(message)
        self._event(
            "verdict",
            round=message.round,
            tokens=drafting.counts.judged - judged,
            accepted=message.accepted,
            token=message.token,
            waited=round(waited_s, 6),
            verify=round(verify_s, 6),
        )
        drafting.counts.verify_s += verify_s
        drafting.counts.waited_s += waited_s
        self._take(advance, "target", waited_s)
        self._preempt_if_dead()
        self._wake.set()

    def _preempt_if_dead(self) -> None:
        if self._predictor is None or self._predicting is None:
            return
        step, prefix_hash = self._predicting
        if self._finish is not None or self._drafting.line.hash != prefix_hash:
            self._event("preempt", step=step)
            self._predictor.preempt()

    async def _drain(self, session: BlockSession) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S) as self._draining:
                await session.drain()
        except TimeoutError:
            if self._stopped is None:
                self._give_up(f"a block could not be sent in {PATIENCE_S:g} s")
        finally:
            self._draining = None

    async def _wait_for_verdict(self) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._wake.wait()
        except TimeoutError:
            self._give_up(f"the cloud has not verified a block in {PATIENCE_S:g} s")

    def _give_up(self, reason: str) -> None:
        """Go on without a cloud that is connected and does not do its part."""
        if self._session is not None:
            self._leave(Reason.ERROR, reason)
            self._go_alone(reason)

    # The cloud goes and comes back.

    def _join(self) -> None:
        """Open a session that goes on from the decided tokens, if there is a connection now."""
        peer = self._connector.peer
        self._may_return = peer is None
        if peer is None:
            return
        drafting = self._drafting
        session = BlockSession(
            peer, answered=self._answered, lost=self._lost, schedules=self._schedules
        )
        self._session = session
        accepted = drafting.line.tokens[: drafting.decided]
        session.open(self._plan, self._question, self._history, accepted)
        self._number = session.number
        trace_open(self._preparer.trace, self._number, self._plan, len(accepted))

    def _lost(self, reason: str) -> None:
        """The connection ended, or the cloud closed the session: only the former may come back."""
        session, self._session = self._session, None
        if session is None:
            return
        self.answer.cloud_sources = self.answer.cloud_sources or session.sources
        self._loss = reason
        self._may_return = not self._connector.connected
        if self._finish is None:
            self._drafting.rewind()
            self._preempt_if_dead()
            self._miss()
        self._wake.set()

    def _miss(self) -> None:
        """Go on without the cloud, or wait for it if it may come back and that is wanted."""
        if self._predictor is None:
            return
        if self._on_loss == "wait" and self._may_return:
            self._notice(f"waiting for the cloud at token {self._drafting.decided}: {self._loss}")
        else:
            self._go_alone(self._loss)

    async def _wait_for_connection(self) -> None:
        self._wake.clear()
        connecting = asyncio.create_task(
            self._connector.wait_connected(PATIENCE_S), name="wait for the cloud"
        )
        stopping = asyncio.create_task(self._wake.wait(), name="wait for a stop")
        try:
            await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            connecting.cancel()
            stopping.cancel()
            await asyncio.gather(connecting, stopping, return_exceptions=True)
        if not connecting.cancelled() and connecting.result() is None:
            self._go_alone(f"the cloud did not come back in {PATIENCE_S:g} s")

    def _leave(self, reason: Reason, text: str = "") -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close(reason, text)

    def _go_alone(self, reason: str) -> None:
        """Decide by the draft model, from the next undecided step on."""
        drafting = self._drafting
        drafting.rewind()
        self._alone = True
        if drafting.counts.alone_from is None:
            drafting.counts.alone_from = drafting.decided
        self._event("alone", step=drafting.decided)
        self._notice(
            f"answering with the draft model alone from token {drafting.decided}: {reason}"
        )

    def _notice(self, text: str) -> None:
        self.answer.notices.append(text)
        self._on_notice(text)

    def _event(self, event: str, **fields: object) -> None:
        self._preparer.trace.event(self._number, event, **fields)
