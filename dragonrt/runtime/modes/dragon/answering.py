"""The cloud's side: a session that a device opens, until the device closes it."""

import asyncio
from typing import Any

from dragonrt.runtime.generation import Generation, GenerationError
from dragonrt.runtime.modes.dragon.session import (
    DragonSession,
    finish_of,
    plan_of,
    trace_open,
)
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.plan import PATIENCE_S, Plan
from dragonrt.runtime.preparing import Preparer, trace_ready
from dragonrt.wire import messages as wire


class Answering:
    """The cloud's side of one session: prepare, say so, and take part until the device closes."""

    def __init__(self, preparer: Preparer, peer: Peer, message: wire.Open) -> None:
        self._preparer = preparer
        self._message = message
        self._plan = plan_of(message)
        self._ended = asyncio.Event()
        self._generation: Generation | None = None
        self._preparing: asyncio.Task[Any] | None = None
        self.session = DragonSession(peer, self._plan, lost=self._lost, diverged=lambda: None)
        self.session.number = message.session
        self._peer = peer

    def _lost(self, reason: str) -> None:
        self._ended.set()
        if self._generation is not None:
            self._generation.stop()
        elif self._preparing is not None:
            self._preparing.cancel()  # nobody waits for the answer: leave the model to others

    async def work(self) -> None:
        """Take part in the answer; raises DragonError where this side cannot."""
        message, plan, trace = self._message, self._plan, self._peer.trace
        trace_open(trace, message.session, plan, len(message.accepted))
        try:
            await self._take_part(message, plan)
        finally:
            trace.event(message.session, "close", finish=finish_of(self._generation))

    async def _take_part(self, message: wire.Open, plan: Plan) -> None:
        if self._ended.is_set():
            return
        self._preparing = asyncio.current_task()
        prepared = await self._preparer.prepare(message.prompt, message.history, plan)
        vocabulary = self._preparer.vocabulary
        trace_ready(self._peer.trace, message.session, prepared, vocabulary)
        self._peer.send(
            wire.Opened(
                session=message.session,
                sources=prepared.sources if self._preparer.share_sources else (),
                prompt_tokens=prepared.prompt_tokens,
                load_us=int(prepared.load_s * 1e6),
                prefill_us=int(prepared.prefill_s * 1e6),
            )
        )
        self._generation = Generation(
            "cloud",
            plan,
            prepared.model,
            self._peer.trace,
            vocabulary=vocabulary,
            session=message.session,
            accepted=message.accepted,
            profile=self._preparer.profile,
        )
        self.session.attach(self._generation)
        await self._generation.run()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._ended.wait()
        except TimeoutError:
            raise GenerationError("the answer is complete, but nobody closed the session") from None
