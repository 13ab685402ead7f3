"""The device's side: one answer, with the cloud while it is there."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dragonrt.distributions.errors import CodecError
from dragonrt.runtime import outcome
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.counts import Counts
from dragonrt.runtime.generation import Generation, GenerationError
from dragonrt.runtime.modes.dragon.session import (
    DragonSession,
    finish_of,
    open_message,
    trace_open,
)
from dragonrt.runtime.outcome import Decision, Finish, OnDecision, OnNotice, Turn
from dragonrt.runtime.plan import PATIENCE_S, Plan
from dragonrt.runtime.preparing import Preparer, trace_ready
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason

OnLoss = Literal["alone", "wait"]


@dataclass(slots=True, kw_only=True)
class Answer(outcome.Answer):
    """The answer of both sides together."""

    plan: Plan
    counts: Counts = field(default_factory=Counts)


def beginning(
    preparer: Preparer, connector: Connector, on_loss: OnLoss
) -> Callable[[Plan, OnDecision, OnNotice], "Asking"]:
    """What begins each answer of a conversation."""

    def begin(plan: Plan, on_decision: OnDecision, on_notice: OnNotice) -> Asking:
        return Asking(
            preparer,
            connector,
            plan,
            on_decision=on_decision,
            on_notice=on_notice,
            on_loss=on_loss,
        )

    return begin


class Asking:
    """The device's side of one answer.

    `on_loss` says what happens between losing the cloud and having it back: "alone" decides on the
    own documents meanwhile, "wait" decides nothing, so that the text stays what it would have been.
    """

    def __init__(
        self,
        preparer: Preparer,
        connector: Connector,
        plan: Plan,
        *,
        on_decision: OnDecision,
        on_notice: OnNotice,
        on_loss: OnLoss = "alone",
    ) -> None:
        self._preparer = preparer
        self._connector = connector
        self._plan = plan
        self._show = on_decision
        self._on_notice = on_notice
        self._on_loss = on_loss
        self._session: DragonSession | None = None
        self._generation: Generation | None = None
        self._rejoin = asyncio.Event()
        self._alone = False
        self._stopped: Finish | None = None
        self._loss = "the cloud is not connected"
        self._question = ""
        self._history: Sequence[Turn] = ()
        self.answer = Answer(plan=plan)

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the answer with the tokens decided so far."""
        self._stopped = reason
        if self._generation is not None:
            self._generation.stop(reason)

    async def ask(self, question: str, history: Sequence[Turn] = ()) -> Answer:
        """Answer one question; DragonError if this side cannot."""
        self._question, self._history = question, history
        answer, loop = self.answer, asyncio.get_running_loop()
        answer.asked_s = loop.time()
        before = self._connector.traffic()
        await self._connector.reach()
        self._join(())
        if self._session is None:
            trace_open(self._preparer.trace, 0, self._plan, 0)
        try:
            prepared = await self._preparer.prepare(question, history, self._plan)
            vocabulary = self._preparer.vocabulary
            trace_ready(self._preparer.trace, self._session_number, prepared, vocabulary)
            generation = self._generation = Generation(
                "device",
                self._plan,
                prepared.model,
                self._preparer.trace,
                self._decide,
                vocabulary=vocabulary,
                session=self._session_number,
                profile=self._preparer.profile,
            )
            answer.device_sources = prepared.sources
            answer.counts = generation.counts
            if self._stopped is not None:
                generation.stop(self._stopped)
            if self._session is None and self._rejoin.is_set():
                self._join(())  # the cloud may have come back while this side prepared
            try:
                if self._session is not None:
                    self._session.attach(generation)
                else:
                    self._miss()
            except (GenerationError, CodecError) as error:  # in what came while this side prepared
                self._give_up(str(error))
            await self._generate(generation)
            answer.finish = generation.finish or Finish.CANCELLED
        finally:
            number = self._session_number
            if self._session is not None:
                answer.rtt_s = self._session.round_trip_s()
                answer.cloud_sources = self._session.sources
                cancelled = answer.finish is Finish.CANCELLED
                self._session.close(Reason.CANCELLED if cancelled else Reason.FINISHED)
            self._preparer.trace.event(number, "close", finish=finish_of(self._generation))
        after = self._connector.traffic()
        answer.bytes_sent, answer.bytes_received = after[0] - before[0], after[1] - before[1]
        return answer

    def _decide(self, decision: Decision) -> None:
        self.answer.decisions.append(decision)
        self._show(decision)

    async def _generate(self, generation: Generation) -> None:
        """Run the generation to its end while another task brings a lost cloud back."""
        rejoin = asyncio.create_task(self._rejoin_when_lost(generation), name="rejoin")
        try:
            while generation.finish is None:
                try:
                    await generation.run()
                except (GenerationError, CodecError) as error:
                    if self._alone:
                        raise
                    self._give_up(str(error))
        finally:
            rejoin.cancel()
            await asyncio.gather(rejoin, return_exceptions=True)

    # The cloud goes and comes back.

    @property
    def _session_number(self) -> int:
        """The session's number, the generation's last one, or 0 if there was never one."""
        if self._session is not None:
            return self._session.number
        return self._generation.session if self._generation is not None else 0

    def _join(self, accepted: Sequence[int]) -> None:
        """Open a session that goes on from the accepted tokens, if there is a connection now."""
        peer = self._connector.peer
        if peer is None:
            self._rejoin.set()
            return
        self._rejoin.clear()
        session = DragonSession(peer, self._plan, lost=self._lost, diverged=self._restart)

        def message(number: int) -> wire.Open:
            trace_open(self._preparer.trace, number, self._plan, len(accepted))
            return open_message(self._plan, self._question, self._history, accepted, number)

        session.number = peer.open(session, message)
        self._session = session

    def _lost(self, reason: str) -> None:
        """The connection ended, or the cloud closed the session: only the former may come back."""
        session, self._session = self._session, None
        if session is None:
            return
        self.answer.cloud_sources = self.answer.cloud_sources or session.sources
        self._loss = reason
        if not self._connector.connected:
            self._rejoin.set()
        self._miss()

    def _miss(self) -> None:
        """Go on without the cloud, or wait for it if it may come back and that is wanted."""
        if self._generation is None:
            return
        if self._on_loss == "wait" and self._rejoin.is_set():
            self._generation.disconnect()
            self._notice(f"waiting for the cloud at token {self._generation.decided}: {self._loss}")
        else:
            self._go_alone(self._loss)

    def _restart(self) -> None:
        """The two sides decided different texts: the device's stands, the cloud starts from it."""
        if self._generation is not None:
            self._leave(Reason.ERROR, "the two sides decided different texts; starting again")
            self._generation.disconnect()
            self._rejoin.set()

    def _leave(self, reason: Reason, text: str) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close(reason, text)

    def _give_up(self, reason: str) -> None:
        """The cloud's session is of no use: it ends, and this side answers alone."""
        self._leave(Reason.ERROR, reason)
        self._go_alone(reason)

    def _go_alone(self, reason: str) -> None:
        if self._generation is not None and self._generation.finish is None and not self._alone:
            self._alone = True
            step = self._generation.decided
            self._notice(f"answering from the device's documents alone from token {step}: {reason}")
            self._generation.go_alone()

    def _notice(self, text: str) -> None:
        self.answer.notices.append(text)
        self._on_notice(text)

    async def _rejoin_when_lost(self, generation: Generation) -> None:
        """Resume the session from the decided tokens whenever the cloud is back."""
        while True:
            await self._rejoin.wait()
            if await self._connector.wait_connected(PATIENCE_S) is None:
                self._go_alone(f"the cloud did not come back in {PATIENCE_S:g} s")
                continue
            self._join(generation.line.tokens[: generation.decided])
            if self._session is not None:
                self._alone = False
                self._session.attach(generation)
                self._preparer.trace.event(generation.session, "resume", step=generation.decided)
