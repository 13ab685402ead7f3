"""The driver of an answer, for every mode and both sides: the only one there is.

It does I/O and nothing else: opens sessions and joins again, feeds messages, time and finished work
into a mode, and carries out what that leads to. What an answer is lies in `dragonrt.modes`.

`Asking` is the device's answer, with as many other sides as it has connectors; `answering` is the
cloud's part of one session.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.modes.catalogue import Kit, ModeEntry, entry_of, mode_entry
from dragonrt.modes.mode import Effects, Finish, Leave, Mode, Work
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.preparing import Context, Outcome, Prepared, Preparer
from dragonrt.setting import traced
from dragonrt.traces.events import (
    AnswerClosed,
    AnswerOpened,
    Drafted,
    Event,
    Noticed,
    Record,
    SideReady,
    TokenDecided,
)
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import Reason
from dragonrt.wire.values import pack, unpack

CONGESTED_BYTES = 64 * 1024
"""After so many sent bytes no work is begun before the other side has taken them in."""

OnRecord = Callable[[Record], None]


@dataclass(slots=True, kw_only=True)
class Answer:
    """What the device knows when an answer is complete. Times are seconds on its loop's clock.

    `records` are the answer's own events, without drafts and messages: statistics are folds over
    them.
    """

    question: Question
    settings: Settings
    records: list[Record] = field(default_factory=list)
    finish: Finish = Finish.CANCELLED
    device_sources: tuple[wire.Source, ...] = ()
    cloud_sources: tuple[wire.Source, ...] = ()
    asked_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    rtt_s: float = 0.0

    @property
    def decisions(self) -> list[tuple[float, TokenDecided]]:
        """Every decided token with its time, the stop token included."""
        decided = ((each.t, each.event) for each in self.records)
        return [(t, event) for t, event in decided if isinstance(event, TokenDecided)]

    @property
    def tokens(self) -> list[int]:
        """The answer's tokens, the stop token included."""
        return [event.token for _, event in self.decisions]

    @property
    def notices(self) -> list[str]:
        """What the person was told on the way."""
        events = (record.event for record in self.records)
        return [event.text for event in events if isinstance(event, Noticed)]


class AnswerSession:
    """One other side of an answer: the session on its connection of now. Implements peer.Session.

    `connector` brings a lost connection back; a cloud has none. `gone` says that one is wanted.
    """

    def __init__(self, driver: "Driver", name: str, connector: Connector | None) -> None:
        self.name = name
        self.connector = connector
        self.number = 0
        self.sources: tuple[wire.Source, ...] = ()
        self.gone = asyncio.Event()
        self._closed = asyncio.Event()
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
            self._driver.mode.measured(self.name, self._peer.round_trip_s, bandwidth)

    def receive(self, message: wire.SessionMessage) -> None:
        if isinstance(message, wire.Opened):
            self.sources = message.sources
        self._driver.receive(self, message)

    def lost(self, reason: str) -> None:
        """The connection ended, or the session was closed: only the former comes back."""
        if self._forget() is None:
            return
        returns = self.connector is not None and not self.connector.connected
        if returns:
            self.gone.set()
        self._driver.feed(lambda now: self._driver.mode.left(self.name, reason, returns, now))

    # What the driver calls.

    @property
    def congested(self) -> bool:
        """Whether the other side has yet to take in what was sent."""
        return self._draining is not None

    def attach(self, peer: Peer, number: int) -> None:
        """The session is open on that connection."""
        self._peer, self.number = peer, number
        self.gone.clear()
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

    async def wait_closed(self) -> None:
        """Until the other side has closed the session. Raises DragonError if it does not."""
        try:
            async with asyncio.timeout(self._driver.patience.answer_s):
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
        self._driver.feed(lambda now: self._driver.mode.left(self.name, reason, False, now))

    def _forget(self) -> Peer | None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self._driver.note_rtt(peer.round_trip_s)
            self._closed.set()
        return peer

    async def _drain(self, peer: Peer) -> None:
        seconds = self._driver.patience.answer_s
        try:
            async with asyncio.timeout(seconds):
                await peer.drain()
        except TimeoutError:
            if self._peer is peer:
                self.fail(f"the other side took nothing in for {seconds:g} s")
        finally:
            self._unread, self._draining = 0, None
            self._driver.go_on()


class Driver:
    """Runs one mode: inputs in, in order, effects out. `on_record` hears of every event."""

    def __init__(self, preparer: Preparer, mode: Mode, on_record: OnRecord) -> None:
        self.mode = mode
        self.patience = preparer.patience
        self.sessions: dict[str, AnswerSession] = {}
        self.stopped = False
        self.finish: Finish | None = None
        self.rtt_s = 0.0
        self.recorder = preparer.recorder.also(on_record)
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._error: Exception | None = None
        self._context: Context | None = None
        self._inputs: deque[Callable[[float], Effects]] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    # Inputs.

    def begin(self, prepared: Prepared, vocabulary: int) -> None:
        """This side has read the question: from now on work is done."""
        self.record(
            SideReady(prepared.load_s, prepared.prefill_s, prepared.prompt_tokens, vocabulary)
        )
        self._context = prepared.context
        self.feed(lambda now: self.mode.prepared(prepared.grounds, now))

    def feed(self, call: Callable[[float], Effects]) -> None:
        """Feed one input in. What comes in meanwhile waits, what comes late is lost."""
        if self.over:
            return
        self._inputs.append(call)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inputs and not self.over:
                self._carry_out(self._inputs.popleft()(self._loop.time()))
            self._begin_work()
        except Exception as error:  # of the mode itself: the answer ends, not the process
            self._fail(error)
        finally:
            self._busy = False
        self._set_timer()

    def receive(self, session: AnswerSession, message: wire.SessionMessage) -> None:
        """Feed a message in; raises DragonError for one that ends its session."""
        effects = self.mode.received(session.name, message, self._loop.time())
        self.feed(lambda _: effects)

    def stop(self, reason: Finish) -> None:
        """End the answer with the tokens decided so far: no more are shown."""
        self.stopped = True
        self.feed(lambda now: self.mode.stop(reason, now))

    def go_on(self) -> None:
        """Something that held work up is over."""
        self.feed(lambda _: Effects())

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
            self.feed(lambda now: self.mode.left(leave.peer, leave.text, False, now))
        elif leave.again:
            session.gone.set()

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
            self.feed(lambda now: self.mode.dropped(work, outcome.seconds, now))
        elif error is None:
            self.feed(lambda now: self.mode.done(work, outcome.value, outcome.seconds, now))
        elif isinstance(error, DragonError) and work.peer in self.sessions:
            self._blame(work, str(error))
        else:
            self._fail(error)

    def _blame(self, work: Work, reason: str) -> None:
        """What the other side sent could not be computed with."""
        self.sessions[work.peer or ""].fail(reason)
        self.feed(lambda now: self.mode.dropped(work, 0.0, now))

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
        self.feed(lambda now: self.mode.tick(now))

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


class Asking:
    """The device's side of one answer. Other sides are reached by `connectors`, by their names."""

    def __init__(
        self,
        preparer: Preparer,
        connectors: Mapping[str, Connector],
        question: Question,
        settings: Settings,
        kit: Kit,
        on_record: OnRecord = lambda record: None,
    ) -> None:
        self.answer = Answer(question=question, settings=settings)
        self._preparer = preparer
        self._entry = entry_of(settings)
        self._on_record = on_record
        mode = self._entry.device(question, settings, kit)
        self._driver = Driver(preparer, mode, self._record)
        for name, connector in connectors.items():
            self._driver.sessions[name] = AnswerSession(self._driver, name, connector)

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the answer with the tokens decided so far."""
        self._driver.stop(reason)

    async def ask(self) -> Answer:
        """Answer the question; DragonError if this side cannot."""
        answer, driver = self.answer, self._driver
        sessions = driver.sessions.values()
        answer.asked_s = asyncio.get_running_loop().time()
        before = self._traffic()
        await self._reach()
        joining = [
            asyncio.create_task(self._keep_joined(session), name=f"join {session.name}")
            for session in sessions
        ]
        try:
            for session in sessions:
                self._join(session)
            if self._several or not any(session.number for session in sessions):
                self._opened(0)
            prepared = await self._prepare()
            if prepared is not None:
                answer.device_sources = prepared.sources
                driver.begin(prepared, self._preparer.vocabulary)
            await driver.wait_over()
            answer.finish = driver.finish or Finish.CANCELLED
        finally:
            for task in joining:
                task.cancel()
            await asyncio.gather(*joining, return_exceptions=True)
            cancelled = answer.finish is Finish.CANCELLED
            for session in sessions:
                session.close(Reason.CANCELLED if cancelled else Reason.FINISHED)
            await driver.settle()
            answer.rtt_s, after = driver.rtt_s, self._traffic()
            answer.bytes_sent, answer.bytes_received = after[0] - before[0], after[1] - before[1]
            finish = driver.finish.value if driver.finish else "error"
            driver.record(
                AnswerClosed(finish, answer.bytes_sent, answer.bytes_received, answer.rtt_s)
            )
            found = (source for session in sessions for source in session.sources)
            answer.cloud_sources = tuple(dict.fromkeys(found))
        return answer

    async def _prepare(self) -> Prepared | None:
        """This side's preparation; None if the answer is stopped before."""
        question, verifies = self.answer.question, self._driver.mode.verifies
        preparing = asyncio.ensure_future(self._preparer.prepare(question, verifies=verifies))
        over = asyncio.ensure_future(self._driver.wait_over())
        try:
            await asyncio.wait((preparing, over), return_when=asyncio.FIRST_COMPLETED)
            return await preparing if preparing.done() else None
        finally:
            for task in (preparing, over):
                task.cancel()
            await asyncio.gather(preparing, over, return_exceptions=True)

    def _record(self, record: Record) -> None:
        if not isinstance(record.event, Drafted):
            self.answer.records.append(record)
        self._on_record(record)

    def _traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, over all connections."""
        connectors = (session.connector for session in self._driver.sessions.values())
        each = [connector.traffic() for connector in connectors if connector is not None]
        return sum(sent for sent, _ in each), sum(received for _, received in each)

    # Joining, and joining again.

    async def _reach(self) -> None:
        """Dial now what is not connected, where nothing is."""
        connectors = [each.connector for each in self._driver.sessions.values() if each.connector]
        if not any(connector.connected for connector in connectors):
            await asyncio.gather(*(connector.reach() for connector in connectors))

    def _join(self, session: AnswerSession) -> None:
        """Open a session that goes on from the decided tokens, if there is a connection now."""
        peer = session.connector.peer if session.connector is not None else None
        if peer is None:
            who = "it" if self._several else f"the {session.name}"
            reason = f"{who} is not connected"
            self._driver.feed(lambda now: self._driver.mode.left(session.name, reason, True, now))
            session.gone.set()
            return
        decided = tuple(self._driver.mode.decided)
        question = self.answer.question.resumed(decided)

        def message(number: int) -> wire.Open:
            session.number = number
            if not self._several:
                self._opened(len(decided))
            settings = pack(self.answer.settings)
            return wire.Open(number, self._entry.name, pack(question), settings)

        session.attach(peer, peer.open(session, message))
        self._driver.feed(lambda now: self._driver.mode.joined(session.name, session.number, now))

    @property
    def _several(self) -> bool:
        """Whether the answer has several other sides: its events then belong to no session."""
        return len(self._driver.sessions) > 1

    def _opened(self, accepted: int) -> None:
        answer = self.answer
        self._driver.record(_opening(self._entry, answer.question, answer.settings, accepted))

    async def _keep_joined(self, session: AnswerSession) -> None:
        """Resume the session from the decided tokens whenever its other side is back."""
        connector = session.connector
        while connector is not None:
            await session.gone.wait()
            if await connector.wait_connected(self._driver.patience.answer_s) is not None:
                self._join(session)


def answering(
    preparer: Preparer, peer: Peer, message: wire.Open
) -> tuple[AnswerSession, Coroutine[Any, Any, None]]:
    """What a cloud's peers call for every session that a device opens; DragonError refuses it."""
    entry = mode_entry(message.mode)
    question = unpack(Question, message.question)
    settings = unpack(entry.settings, message.settings)
    question.check_vocabulary(preparer.vocabulary)
    kit = Kit(vocabulary=preparer.vocabulary, patience=preparer.patience, profile=preparer.profile)
    driver = Driver(preparer, entry.cloud(question, settings, kit), lambda record: None)
    driver.recorder = peer.recorder
    session = driver.sessions["device"] = AnswerSession(driver, "device", None)
    session.attach(peer, message.session)
    driver.feed(lambda now: driver.mode.joined("device", message.session, now))
    opening = _opening(entry, question, settings, len(question.accepted))
    return session, _answer(preparer, driver, session, question, opening)


def _opening(
    entry: ModeEntry, question: Question, settings: Settings, accepted: int
) -> AnswerOpened:
    return AnswerOpened(entry.name, accepted, {**traced(question), **traced(settings)})


async def _answer(
    preparer: Preparer,
    driver: Driver,
    session: AnswerSession,
    question: Question,
    opening: AnswerOpened,
) -> None:
    """Prepare, say so, and take part until the device closes the session."""
    driver.record(opening)
    preparing = asyncio.ensure_future(preparer.prepare(question, verifies=driver.mode.verifies))
    over = asyncio.ensure_future(driver.wait_over())
    try:
        await asyncio.wait((preparing, over), return_when=asyncio.FIRST_COMPLETED)
        if not preparing.done():
            return  # nobody waits for the answer: leave the model to others
        prepared = await preparing
        session.send(
            wire.Opened(
                session=session.number,
                sources=prepared.sources if preparer.share_sources else (),
                prompt_tokens=prepared.prompt_tokens,
                load_us=int(prepared.load_s * 1e6),
                prefill_us=int(prepared.prefill_s * 1e6),
            )
        )
        driver.begin(prepared, preparer.vocabulary)
        await over
        await session.wait_closed()
    finally:
        for task in (preparing, over):
            task.cancel()
        await asyncio.gather(preparing, over, return_exceptions=True)
        await driver.settle()
        driver.record(AnswerClosed(driver.finish.value if driver.finish else "error"))
