"""The driver of an answer, for every mode and both sides: the only one there is.

It does I/O and nothing else: opens sessions and joins again, feeds messages, time and finished work
into a mode, and carries out what that leads to. What an answer is lies in `dragonrt.modes`.

Around it stand `asking`, the device's answer with as many other sides as it has connectors, and
`serving`, the cloud's part of one session.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from dragonrt.errors import DragonError
from dragonrt.modes.mode import (
    Computed,
    Effects,
    Finish,
    Input,
    Leave,
    Left,
    Measured,
    Mode,
    Preempted,
    Received,
    Stopped,
    TimedOut,
    Work,
)
from dragonrt.modes.question import Question
from dragonrt.modes.registry import ModeEntry
from dragonrt.modes.settings import Settings
from dragonrt.node.connector import Reachable
from dragonrt.node.peer import Peer
from dragonrt.node.preparing import Context, Outcome, PrefillResult, Preparer
from dragonrt.settings import traced
from dragonrt.traces.events import (
    AnswerOpened,
    Event,
    Record,
    SideReady,
    TokenDecided,
)
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import Reason

CONGESTED_BYTES = 64 * 1024
"""After so many sent bytes no work is begun before the other side has taken them in."""

OnRecord = Callable[[Record], None]


def opening(
    entry: ModeEntry, question: Question, settings: Settings, accepted: int
) -> AnswerOpened:
    """The event with which an answer begins, or goes on from so many accepted tokens."""
    shown = {**traced(question), **traced(settings)}
    return AnswerOpened(entry.name, accepted, shown, entry.exact)


class AnswerSession:
    """One other side of an answer: the session on its connection of now. Implements peer.Session.

    `connector` brings a lost connection back; a cloud has none. `gone` says that one is wanted,
    after `retry_s` seconds where the other side was busy. `weights` is its model's fingerprint.
    `attribution` is what it said of the answer at the end; `attribute` says that of this side.
    What is `over` is not opened again.
    """

    def __init__(self, driver: "Driver", name: str, connector: Reachable | None) -> None:
        self.name = name
        self.connector = connector
        self.number = 0
        self.attribution: wire.Attribution | None = None
        self.attribute: Callable[[], wire.Attribution | None] = lambda: None
        self.gone = asyncio.Event()
        self.retry_s = 0.0
        self.weights: str | None = None
        self._opened = False
        self.over = False
        self._closed = asyncio.Event()
        self._evidence: str | None = None
        self._driver = driver
        self._peer: Peer | None = None
        self._unread = 0
        self._draining: asyncio.Task[None] | None = None

    # What the peer calls.

    @property
    def times_bandwidth(self) -> bool:
        return self._driver.mode.times_bandwidth

    def measured(self) -> None:
        if self._peer is not None:
            bandwidth = self._peer.bandwidth.average
            self._driver.feed(Measured(self.name, self._peer.round_trip_s, bandwidth))

    def receive(self, message: wire.SessionMessage) -> None:
        if self._driver.over and self.connector is not None:
            return  # the device's answer is complete, whatever was under way
        if isinstance(message, wire.Opened):
            if self._evidence not in (None, message.evidence):
                raise DragonError("its documents have changed since the answer began")
            self._opened, self._evidence = True, message.evidence
        elif isinstance(message, wire.Conclude):
            if self._peer is not None:
                self._peer.close(self.number, Reason.FINISHED, attribution=self.attribute())
            self._left("the answer is complete", returns=False)
            return
        self._driver.feed(Received(self.name, message))

    def closed(self, close: wire.Close) -> None:
        """Who was only busy is asked again."""
        self.retry_s, self.attribution = close.retry_ms / 1000, close.attribution
        self._left(close.text or close.reason.value, returns=close.reason is Reason.BUSY)

    def lost(self, reason: str) -> None:
        self._left(reason, returns=True)

    def _left(self, reason: str, *, returns: bool) -> None:
        if self._forget() is None:
            return
        returns = returns and self.connector is not None
        if returns:
            self.gone.set()
        self._driver.feed(Left(self.name, reason, returns))

    # What the driver calls.

    @property
    def took_part(self) -> bool:
        """Whether the other side ever opened the session."""
        return self._evidence is not None

    @property
    def congested(self) -> bool:
        """Whether the other side has yet to take in what was sent."""
        return self._draining is not None

    def attach(self, peer: Peer, number: int) -> None:
        """The session is open on that connection."""
        self._peer, self.number, self._opened = peer, number, False
        self.gone.clear()
        self.retry_s = 0.0
        self._closed.clear()
        self.measured()

    def send(self, message: wire.SessionMessage) -> None:
        if self._peer is None:
            return
        self._unread += self._peer.send(message)
        if self._unread > CONGESTED_BYTES and self._draining is None:
            self._draining = asyncio.create_task(self._drain(self._peer), name="drain")

    def close(self, reason: Reason, text: str = "") -> None:
        """End the session on its connection, without a word to the mode."""
        peer = self._forget()
        if peer is not None:
            peer.close(self.number, reason, text)

    async def conclude(self) -> None:
        """End the session of a complete answer; wait a while for the other side's attribution."""
        if self._peer is not None and self._opened:
            self.send(wire.Conclude(self.number))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._driver.timeouts.rejoin_s):
                    await self._closed.wait()
        self.close(Reason.FINISHED)

    async def wait_closed(self) -> None:
        """Until the other side has closed the session. Raises DragonError if it does not."""
        try:
            async with asyncio.timeout(self._driver.timeouts.answer_s):
                await self._closed.wait()
        except TimeoutError:
            text = "the answer is complete, but nobody closed the session"
            raise DragonError(text) from None

    async def settle(self) -> None:
        """Leave no task behind."""
        draining = self._draining
        if draining is not None:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)

    def fail(self, reason: str) -> None:
        """The other side is of no use to this answer: it ends there."""
        self.close(Reason.ERROR, reason)
        self._driver.feed(Left(self.name, reason, False))

    def _forget(self) -> Peer | None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self._driver.note_rtt(peer.round_trip_s)
            self._closed.set()
        return peer

    async def _drain(self, peer: Peer) -> None:
        seconds = self._driver.timeouts.answer_s
        try:
            async with asyncio.timeout(seconds):
                await peer.drain()
        except TimeoutError:
            if self._peer is peer:
                self.fail(f"the other side took nothing in for {seconds:g} s")
        finally:
            self._unread, self._draining = 0, None
            self._driver.feed()


class Driver:
    """Runs one mode: inputs in, in order, effects out. `on_record` hears of every event."""

    def __init__(self, preparer: Preparer, mode: Mode, on_record: OnRecord) -> None:
        self.mode = mode
        self.timeouts = preparer.timeouts
        self.sessions: dict[str, AnswerSession] = {}
        self.stopped = False
        self.finish: Finish | None = None
        self.rtt_s = 0.0
        self.recorder = preparer.recorder.also(on_record)
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._error: Exception | None = None
        self._context: Context | None = None
        self._inputs: deque[Input] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    # Inputs.

    def begin(self, read: PrefillResult, vocabulary: int) -> None:
        """Feed the prefill result in: from now on work is done."""
        self.record(SideReady(read.load_s, read.prefill_s, read.prompt_tokens, vocabulary))
        self._context = read.context
        self.feed(read.prepared)

    def feed(self, *inputs: Input) -> None:
        """Feed inputs into the mode, in order, and begin what work it then wants.

        What comes in meanwhile waits. After the answer's end messages alone count: the other side
        may need an answer to come as far. A message that the mode refuses ends its session.
        """
        if self.over:
            self._answer_late(inputs)
            return
        self._inputs.extend(inputs)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inputs and not self.over:
                happened = self._inputs.popleft()
                try:
                    effects = self.mode.handle(happened, self._loop.time())
                except DragonError as error:
                    if not isinstance(happened, Received):
                        raise
                    self.sessions[happened.peer].fail(str(error))
                else:
                    self._carry_out(effects)
            self._begin_work()
        except Exception as error:  # of the mode itself: the answer ends, not the process
            self._fail(error)
        finally:
            self._busy = False
        self._set_timer()

    def _answer_late(self, inputs: Sequence[Input]) -> None:
        for happened in inputs:
            if isinstance(happened, Received):
                try:
                    replies = self.mode.handle(happened, self._loop.time()).send
                except DragonError as error:
                    self.sessions[happened.peer].fail(str(error))
                    continue
                for name, reply in replies:
                    self.sessions[name].send(reply)

    def stop(self, reason: Finish) -> None:
        """End the answer with the tokens decided so far: no more are shown."""
        self.stopped = True
        self.feed(Stopped(reason))

    # Effects.

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def record(self, event: Event) -> None:
        """Record an event of this answer, under the number of its session if it has but one."""
        number = 0
        if len(self.sessions) == 1:
            number = next(iter(self.sessions.values())).number
        self.recorder.event(number, event)

    def _carry_out(self, effects: Effects) -> None:
        for event in effects.events:
            if not (self.stopped and isinstance(event, TokenDecided)):
                self.record(event)
        for name, message in effects.send:
            self.sessions[name].send(message)
        for leave in effects.leave:
            self._leave(leave)
        if effects.preempt and self._context is not None:
            self._context.preempt()
        if effects.failed is not None:
            self._fail(effects.failed)
        if effects.finished is not None:
            self.finish = effects.finished
            self._over.set()

    def _leave(self, leave: Leave) -> None:
        session = self.sessions[leave.peer]
        session.close(leave.reason, leave.text)
        if session.connector is None:
            self.feed(Left(leave.peer, leave.text, False))
        elif leave.again:
            session.gone.set()
        else:
            session.over = True

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._over.set()

    def note_rtt(self, seconds: float) -> None:
        """A round trip as it was last known of a session that is over."""
        self.rtt_s = max(self.rtt_s, seconds)

    # Work.

    def _begin_work(self) -> None:
        context = self._context
        while context is not None and not self.over:
            if any(session.congested for session in self.sessions.values()):
                return
            work = self.mode.wanted()
            if work is None:
                return
            context.start(work, self._worked)

    def _worked(self, outcome: Outcome) -> None:
        work, error = outcome.work, outcome.error
        if outcome.preempted:
            self.feed(Preempted(work, outcome.seconds))
        elif error is None:
            self.feed(Computed(work, outcome.value, outcome.seconds))
        elif isinstance(error, DragonError) and work.peer in self.sessions:
            self._blame(work, str(error))
        else:
            self._fail(error)

    def _blame(self, work: Work, reason: str) -> None:
        """What the other side sent could not be computed with."""
        self.sessions[work.peer or ""].fail(reason)
        self.feed(Preempted(work, 0.0))

    # Time.

    def _set_timer(self) -> None:
        due = None if self.over else self.mode.deadline()
        if self._timer is not None:
            if due is not None and self._timer.when() == due and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(TimedOut())

    async def wait_over(self) -> None:
        """Until the answer has ended; raises what it failed with."""
        await self._over.wait()
        if self._error is not None:
            raise self._error

    async def settle(self) -> None:
        """Nothing of the answer goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._over.set()
        if self._context is not None:
            self._context.close()
        for session in self.sessions.values():
            await session.settle()
