"""Drive an answer, in any mode and on either side.

A mode decides tokens and does no I/O. The driver feeds it inputs (messages, results of forwards,
time-outs) and executes its effects: it sends messages, starts forwards and records events.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.modes import mode as modes
from dragonrt.modes.question import Question
from dragonrt.modes.settings import ModeEntry, Settings
from dragonrt.node.answers.model_session import BackendSession, ForwardResult, PrefillResult
from dragonrt.node.connections.connector import Connector
from dragonrt.node.connections.peer import Peer, Session
from dragonrt.privacy.disclosure import Door
from dragonrt.settings import traced
from dragonrt.timeouts import Timeouts
from dragonrt.traces.events import AnswerOpened, Event, Record, SideReady, TokenDecided
from dragonrt.traces.file import Recorder
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import End, Reason

CONGESTED_BYTES = 64 * 1024
"""With this many sent bytes not received yet, no work is started."""

OnRecord = Callable[[Record], None]


def opening(
    entry: ModeEntry[Any, Any], question: Question, settings: Settings, accepted: int
) -> AnswerOpened:
    """Return the event to trace when an answer begins, or resumes after `accepted` tokens."""
    shown = {**traced(question), **traced(settings)}
    return AnswerOpened(entry.name, accepted, shown, entry.exact)


@dataclass(eq=False)
class AnswerSession(Session):
    """Another side that takes part in an answer, made by `Driver.add`, and the session with it.

    On a device, `connector` replaces a lost connection. `gone` is set when a new session must be
    opened, `retry_s` seconds later if the other side was busy. If `over`, it ignores messages.
    `weights` is the fingerprint of the other side's model, `attribution` the sources that it sent.
    On a cloud, `concluded` is the connection on which a device awaits sources, None before. `rtt_s`
    is the longest round trip in seconds. `lets_out(message)` says whether privacy permits it.
    """

    name: str
    connector: Connector | None
    timeouts: Timeouts
    feed: Callable[..., None]
    lets_out: Callable[[wire.SessionMessage], bool]
    times_bandwidth: bool
    number: int = 0
    attribution: wire.Attribution | None = None
    concluded: Peer | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    retry_s: float = 0.0
    rtt_s: float = 0.0
    over: bool = False
    weights: str | None = None
    _opened: bool = False
    _closed: asyncio.Event = field(default_factory=asyncio.Event)
    _evidence: str | None = None
    _peer: Peer | None = None
    _unread: int = 0
    _draining: asyncio.Task[None] | None = None

    # What the peer calls.

    @override
    def measured(self) -> None:
        if self._peer is not None:
            bandwidth = self._peer.bandwidth.average
            self.feed(modes.Measured(self.name, self._peer.round_trip_s, bandwidth))

    @override
    def receive(self, message: wire.SessionMessage) -> None:
        if self.over:
            return
        if isinstance(message, wire.Conclude):
            if self._peer is not None:
                self.concluded = self._peer
            self._left(End(Reason.FINISHED, "the answer is complete"), returns=False)
            return
        if isinstance(message, wire.Opened):
            if self._evidence not in (None, message.evidence):
                raise DragonError("its documents have changed since the answer began")
            self._opened, self._evidence = True, message.evidence
        self.feed(modes.Received(self.name, message))

    @override
    def closed(self, close: wire.Close) -> None:
        self.retry_s, self.attribution = close.retry_ms / 1000, close.attribution
        end = End(close.reason, close.text or close.reason.value)
        self._left(end, returns=close.reason is Reason.BUSY)

    @override
    def lost(self, end: End) -> None:
        self._left(end, returns=True)

    def _left(self, end: End, *, returns: bool) -> None:
        if self._detach() is not None:
            returns = returns and self.connector is not None
            if returns:
                self.gone.set()
            self.feed(modes.Left(self.name, end, returns))

    # What the driver calls.

    @property
    def took_part(self) -> bool:
        """Whether the other side has ever accepted a session of this answer."""
        return self._evidence is not None

    @property
    def congested(self) -> bool:
        return self._draining is not None

    def attach(self, peer: Peer, number: int) -> None:
        """Send and receive from now on by the open session `number` on the connection `peer`."""
        self._peer, self.number, self._opened = peer, number, False
        self.gone.clear()
        self.retry_s = 0.0
        self._closed.clear()
        self.measured()

    def _detach(self) -> Peer | None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self.rtt_s = max(self.rtt_s, peer.round_trip_s)
            self._closed.set()
        return peer

    def open(self, peer: Peer, message: wire.Open) -> bool:
        """Send `message` on `peer` to open a session; return False if privacy forbids it."""
        passes = self.lets_out(message)
        if passes:
            peer.open(self, message)
            self.attach(peer, message.session)
        return passes

    def send(self, message: wire.SessionMessage) -> None:
        """Send a message, or drop it if no session is open or its content may not be disclosed."""
        if self._peer is None or not self.lets_out(message):
            return
        self._unread += self._peer.send(message)
        if self._unread > CONGESTED_BYTES and self._draining is None:
            self._draining = asyncio.create_task(self._drain(self._peer), name="drain")

    def close(self, end: End) -> None:
        """Close the session, if open, for the reason `end`; the mode is not informed."""
        peer = self._detach()
        if peer is not None:
            peer.close(self.number, end)

    def fail(self, end: End) -> None:
        """Close the session for the reason `end`; inform the mode that it will not be reopened."""
        self.close(end)
        self.feed(modes.Left(self.name, end, False))

    async def conclude(self) -> None:
        """As a device, report the answer's end; wait `rejoin_s` at most for the cloud's sources."""
        if self._peer is not None and self._opened:
            self.send(wire.Conclude(self.number))
            with suppress(TimeoutError):
                async with asyncio.timeout(self.timeouts.rejoin_s):
                    await self._closed.wait()
        self.close(End(Reason.FINISHED, ""))

    def send_sources(self, found: wire.Attribution | None) -> None:
        """As a cloud, send a Close with sources `found` (or none) to a device that awaits it."""
        if self.concluded is not None:
            self.concluded.close(self.number, End(Reason.FINISHED, ""), attribution=found)
            self.concluded = None

    async def wait_closed(self) -> None:
        """Wait until the session has ended. Raises DragonError if it takes more than `answer_s`."""
        try:
            async with asyncio.timeout(self.timeouts.answer_s):
                await self._closed.wait()
        except TimeoutError:
            waited = f"{self.timeouts.answer_s:g} s"
            raise DragonError(f"the other side did not close the answer in {waited}") from None

    async def settle(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.gather(self._draining, return_exceptions=True)

    async def _drain(self, peer: Peer) -> None:
        seconds = self.timeouts.answer_s
        try:
            async with asyncio.timeout(seconds):
                await peer.drain()
        except TimeoutError:
            if self._peer is peer:
                text = f"the other side took nothing in for {seconds:g} s"
                self.fail(End(Reason.IDLE, text))
        finally:
            self._unread, self._draining = 0, None
            self.feed()


class Driver:
    """Runs the mode of one answer: feeds it inputs in order, and executes the effects it returns.

    `recorder` gets every event. On a device, `door` is the privacy check of each sent message.
    """

    def __init__(
        self, mode: modes.Mode, recorder: Recorder, timeouts: Timeouts, door: Door | None = None
    ) -> None:
        self.mode = mode
        self._door = door
        self.recorder = recorder
        self.timeouts = timeouts
        self.sessions: dict[str, AnswerSession] = {}
        self.finish: modes.Finish | None = None
        self.over = asyncio.Event()
        """Set when the answer has ended."""
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._error: Exception | None = None
        self._context: BackendSession | None = None
        self._inputs: deque[modes.Input] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, name: str, connector: Connector | None = None) -> AnswerSession:
        """Add the other side `name` to the answer; return its session. Devices pass `connector`."""
        how = self.timeouts, self.feed, self.lets_out, self.mode.times_bandwidth
        session = AnswerSession(name, connector, *how)
        self.sessions[name] = session
        return session

    # Inputs.

    async def prepare(
        self,
        preparation: Coroutine[Any, Any, PrefillResult],
        working: Callable[[], None] | None = None,
    ) -> PrefillResult | None:
        """Await the prefill `preparation`; return its result, or None if the answer ended first.

        Meanwhile `working` is called every `probe_s` seconds: a cloud reports that it is alive.
        """
        preparing = asyncio.ensure_future(preparation)
        tasks = (preparing, asyncio.ensure_future(self.over.wait()))
        wait_s, first = self.timeouts.probe_s if working else None, asyncio.FIRST_COMPLETED
        try:
            while not (await asyncio.wait(tasks, timeout=wait_s, return_when=first))[0]:
                if working is not None:
                    working()
            return await preparing if preparing.done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, read: PrefillResult) -> None:
        """Feed the prefill result into the mode, and start the work that the mode then requests."""
        self.record(SideReady(read.load_s, read.prefill_s, read.prompt_tokens))
        self._context = read.context
        self.feed(read.prepared)

    def feed(self, *inputs: modes.Input) -> None:
        """Feed inputs into the mode, in order, then start the work that it requests.

        Inputs that arrive meanwhile are queued. After the answer's end, only messages are fed, and
        only replies are sent. A message that the mode rejects ends its session.
        """
        self._inputs.extend(inputs)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inputs:
                self._handle(self._inputs.popleft())
            self._begin_work()
        except Exception as error:  # of the mode itself: the answer ends, not the process
            if self.over.is_set():
                raise
            self._fail(error)
        finally:
            self._busy = False
        self._set_timer()

    def _handle(self, happened: modes.Input) -> None:
        if self.over.is_set() and not isinstance(happened, modes.Received):
            return
        try:
            effects = self.mode.handle(happened, self._loop.time())
        except DragonError as error:
            if not isinstance(happened, modes.Received):
                raise
            self.sessions[happened.peer].fail(End.of(error, Reason.PROTOCOL))
        else:
            self._carry_out(effects)

    def stop(self, reason: modes.Finish) -> None:
        """End the answer early, for `reason`; tokens that are decided later are not recorded."""
        self._stopped = True
        self.feed(modes.Stopped(reason))

    # Effects.

    def record(self, event: Event) -> None:
        """Record an event in the trace, with its session's number (0 if several or none)."""
        if self._door is not None and isinstance(event, TokenDecided):
            self._door.decide(event.token, withheld=event.withheld)
        sessions = tuple(self.sessions.values())
        self.recorder.event(sessions[0].number if len(sessions) == 1 else 0, event)

    def lets_out(self, message: wire.SessionMessage) -> bool:
        """Return whether a message may be sent; if so, record in the ledger what it discloses."""
        if self._door is None:
            return True
        entry = self._door.entry(message)
        if entry is not None:
            self.record(entry)
        return entry is not None

    def _carry_out(self, effects: modes.Effects) -> None:
        late = self.over.is_set()
        for event in effects.events:
            if not (late or (self._stopped and isinstance(event, TokenDecided))):
                self.record(event)
        for name, message in effects.send:
            self.sessions[name].send(message)
        if late:
            return
        for leave in effects.leave:
            self._leave(leave)
        if effects.preempt and self._context is not None:
            self._context.preempt()
        if effects.failed is not None:
            self._fail(effects.failed)
        if effects.finished is not None:
            self.finish = effects.finished
            self._end()

    def _leave(self, leave: modes.Leave) -> None:
        session = self.sessions[leave.peer]
        session.close(leave.end)
        if session.connector is None:
            self.feed(modes.Left(leave.peer, leave.end, False))
        elif leave.again:
            session.gone.set()
        else:
            session.over = True

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._end()

    def _end(self) -> None:
        self.over.set()
        for session in self.sessions.values():
            session.over |= session.connector is not None

    # Work.

    def _begin_work(self) -> None:
        while self._context is not None and not self.over.is_set():
            congested = any(session.congested for session in self.sessions.values())
            work = None if congested else self.mode.wanted()
            if work is None:
                return
            self._context.start(work, self._worked)

    def _worked(self, outcome: ForwardResult) -> None:
        work, error = outcome.work, outcome.error
        session = self.sessions.get(work.peer or "")
        if outcome.preempted:
            self.feed(modes.Preempted(work, outcome.seconds))
        elif error is None:
            self.feed(modes.Computed(work, outcome.value, outcome.seconds))
        elif isinstance(error, DragonError) and session is not None:
            session.fail(End.of(error, Reason.PROTOCOL))  # it sent what cannot be computed with
            self.feed(modes.Preempted(work, 0.0))
        else:
            self._fail(error)

    # Time.

    def _set_timer(self) -> None:
        due = None if self.over.is_set() else self.mode.deadline()
        if self._timer is not None:
            if self._timer.when() == due:
                return
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(modes.TimedOut())

    async def wait_over(self) -> None:
        """Wait until the answer has ended. Raises the error it failed with."""
        await self.over.wait()
        if self._error is not None:
            raise self._error

    async def settle(self) -> None:
        self._end()
        self._set_timer()
        if self._context is not None:
            self._context.close()
        for session in self.sessions.values():
            await session.settle()
