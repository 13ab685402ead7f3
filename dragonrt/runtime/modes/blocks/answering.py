"""The answering side of every mode with blocks: follow the text, verify block after block."""

import asyncio
from collections import deque
from typing import Any

from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.drafter import PreemptedError
from dragonrt.runtime.generation import LOW_BITS
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.modes.blocks.session import MAX_OUTSTANDING
from dragonrt.runtime.modes.blocks.tracing import trace_open
from dragonrt.runtime.modes.blocks.verifying import InPlace, Uploads, Verifying
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.predictor import Predictor
from dragonrt.runtime.preparing import Preparer, trace_ready
from dragonrt.sampling.speculative import Verdict
from dragonrt.wire import messages as wire

INBOX = 2 * MAX_OUTSTANDING
"""Blocks that may wait here: those under way, behind others that a verdict has made useless."""
IDLE_S = 300.0
"""A session in which no block comes for so long is closed."""
LARGEST_READING = 2**27
"""Probabilities in one forward: positions times documents times vocabulary (512 MiB of float32)."""


class BlockAnswering:
    """One session that the asking side opens, until it closes it. Implements peer.Session.

    Blocks wait in a bounded inbox and are answered in order, each after one forward. A block that
    follows another text than the one that stands was drafted ahead on a wrong guess: it is dropped
    without an answer, as the asking side knows that it is. Reading a block and judging it may take
    long for a large vocabulary, so both happen off the loop.
    """

    def __init__(
        self,
        preparer: Preparer,
        peer: Peer,
        message: wire.OpenBlocks,
        plan: BlockPlan,
        verifying: Verifying,
    ) -> None:
        self._preparer = preparer
        self._peer = peer
        self._message = message
        self._plan = plan
        self._verifying = verifying
        self._line = Line(start_hash(plan.seed), message.accepted)
        self._inbox: deque[tuple[wire.Block, float]] = deque()
        self._dropped = 0
        self._round = 0
        self._ended = False
        self._wake = asyncio.Event()
        self._preparing: asyncio.Task[Any] | None = None
        self._predictor: Predictor | None = None
        self._clock = asyncio.get_running_loop().time

    # What the peer calls.

    @property
    def schedules(self) -> bool:
        return False

    def receive(self, message: wire.SessionMessage) -> None:
        if not isinstance(message, wire.Block):
            raise BlockError(f"a {type(message).__name__} has no place in a session of blocks")
        if message.round <= self._round:
            raise BlockError(f"block {message.round} came after block {self._round}")
        if len(self._inbox) >= INBOX:
            raise BlockError(f"more than {INBOX} blocks wait for an answer")
        if message.step + message.count > self._plan.max_tokens:
            raise BlockError(
                f"a block of {message.count} tokens at step {message.step} reaches beyond the "
                f"longest answer, {self._plan.max_tokens} tokens"
            )
        rows = max(1, self._plan.documents)
        if (message.count + 1) * rows * self._preparer.vocabulary > LARGEST_READING:
            raise BlockError(
                f"a block of {message.count} tokens over {rows} documents takes too much memory: "
                "send shorter blocks or ask for fewer documents"
            )
        self._round = message.round
        self._inbox.append((message, self._clock()))
        self._wake.set()

    def lost(self, reason: str) -> None:
        self._ended = True
        self._wake.set()
        if self._predictor is not None:
            self._predictor.preempt()
        elif self._preparing is not None:
            self._preparing.cancel()  # nobody waits for the answer: leave the model to others

    # The work.

    async def work(self) -> None:
        """Answer blocks until the asking side closes; raises DragonError where this side cannot."""
        trace, number = self._peer.trace, self._message.session
        trace_open(trace, number, self._plan, len(self._message.accepted))
        try:
            if not self._ended:
                await self._prepare()
            while not self._ended:
                await self._wait_for_block()
                while self._inbox and not self._ended:
                    block, came_s = self._inbox.popleft()
                    if self._follow(block):
                        await self._answer(block, came_s)
        finally:
            trace.event(number, "close", finish=self._finish())

    async def _prepare(self) -> None:
        message, vocabulary = self._message, self._preparer.vocabulary
        self._preparing = asyncio.current_task()
        prepared = await self._preparer.prepare_predictor(
            message.prompt, message.history, self._plan
        )
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
        self._predictor = prepared.model

    async def _wait_for_block(self) -> None:
        self._wake.clear()
        if self._inbox or self._ended:
            return
        try:
            async with asyncio.timeout(IDLE_S):
                await self._wake.wait()
        except TimeoutError:
            raise BlockError(f"no block came for {IDLE_S:g} s") from None

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
        if self._dropped >= MAX_OUTSTANDING:
            raise BlockError(f"{self._dropped} blocks in a row follow another text")
        return False

    async def _answer(self, message: wire.Block, came_s: float) -> None:
        """One forward over the block, and the mode's answer to it."""
        predictor, line, step = self._predictor, self._line, message.step
        if predictor is None:
            raise ValueError("the side is not prepared yet")
        block = await self._preparer.off_loop(lambda: self._verifying.read(message))
        if self._ended:
            return
        line.replace_from(step, block.tokens)
        start_s = self._clock()
        try:
            said = await predictor.predict(line, block.first, len(line))
        except PreemptedError:
            return
        if self._ended:
            return
        seconds = self._clock() - start_s
        trace, session = self._peer.trace, message.session
        trace.event(
            session, "decode", step=block.first, tokens=len(said), seconds=round(seconds, 6)
        )
        answer = await self._preparer.off_loop(lambda: self._verifying.answer(block, said))
        if self._ended:
            return
        verify_us = int(seconds * 1e6)
        match answer:
            case Verdict(accepted, token) | InPlace(accepted, token):
                place = step if isinstance(answer, InPlace) else step + accepted
                line.replace_from(place, [token])
                reply: wire.Verdict | wire.Upload = wire.Verdict(
                    session, message.round, accepted, token, verify_us
                )
                trace.event(
                    session,
                    "verdict",
                    round=message.round,
                    tokens=len(block.tokens),
                    accepted=accepted,
                    token=token,
                    waited=round(start_s - came_s, 6),
                    verify=round(seconds, 6),
                )
            case Uploads(relevance, payloads):
                line.cut(step)
                reply = wire.Upload(session, message.round, relevance, verify_us, payloads)
        self._peer.send(reply)
        try:
            async with asyncio.timeout(IDLE_S):
                await self._peer.drain()
        except TimeoutError:
            raise BlockError(f"nothing was read here for {IDLE_S:g} s") from None

    def _finish(self) -> str:
        """Why the session ended, as far as this side can know it."""
        if not self._ended:
            return "error"
        if not set(self._plan.stop_tokens).isdisjoint(self._line.tokens):
            return Finish.STOP.value
        complete = len(self._line) >= self._plan.max_tokens
        return (Finish.LENGTH if complete else Finish.CANCELLED).value
