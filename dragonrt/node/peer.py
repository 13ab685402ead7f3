"""One authenticated connection to the other side: its pump, its probes and its sessions.

The peer owns the stream and every task that works for it. Messages go to their session the moment
they arrive, synchronously, so that a slow session never holds up another.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from dragonrt.errors import DragonError, LinkError
from dragonrt.link.probe import BandwidthEstimator, RttEstimator
from dragonrt.link.stream import Stream
from dragonrt.node.constant_rate import ConstantRate
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.events import LinkProbed, MessageReceived, MessageSent
from dragonrt.traces.file import Recorder
from dragonrt.wire.connection import Connection, Event, State
from dragonrt.wire.messages import (
    Attribution,
    Block,
    Close,
    Draft,
    Goodbye,
    Hello,
    Message,
    Open,
    Ping,
    Pong,
    SessionMessage,
    Target,
    Upload,
    Verdict,
)
from dragonrt.wire.reasons import BusyError, Reason, RemoteProtocolError
from dragonrt.wire.sessions import SessionState

BURST_BYTES = 2048
"""Padding of the probe that times the bandwidth: the delay it adds to an empty one."""

log = logging.getLogger("dragonrt")


class ConnectionLostError(DragonError):
    """The connection to the other side ended; the line says why."""


class Session(Protocol):
    """What a mode registers for each of its sessions."""

    @property
    def times_bandwidth(self) -> bool:
        """Whether it decides by the bandwidth, so that timed bursts are worth their bytes."""
        ...

    def measured(self) -> None:
        """The peer knows more of the link than before."""
        ...

    def receive(self, message: SessionMessage) -> None:
        """Take in a message of this session; a DragonError closes the session with its line."""
        ...

    def closed(self, close: Close) -> None:
        """The other side ended the session, or what it sent did."""
        ...

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        ...


Answerer = Callable[["Peer", Open], tuple[Session, Coroutine[Any, Any, None]]]
"""Makes the session that the other side opens, and the coroutine that works on it."""


class Peer:
    """See the module. `answerer` serves sessions that the other side opens, if this side does."""

    def __init__(
        self,
        stream: Stream,
        connection: Connection,
        recorder: Recorder,
        answerer: Answerer | None = None,
        timeouts: Timeouts = USUAL,
        first_session: int = 1,
    ) -> None:
        self._stream = stream
        self._connection = connection
        self._recorder = recorder
        self._timeouts = timeouts
        self._answerer = answerer
        self._sessions: dict[int, Session] = {}
        self._next_session = first_session
        self._early: list[
            tuple[Event, int]
        ] = []  # what came together with the end of the handshake
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._wake_probe = asyncio.Event()
        self._sequence = 0
        self._padded: dict[int, bool] = {}
        self.rtt = RttEstimator()
        self.bandwidth = BandwidthEstimator()
        self.lost_reason: str | None = None
        self.pacing = ConstantRate(connection, self._write, self._drain_stream)
        self.on_end: Callable[[], None] = lambda: None
        """Called when the connection has ended, before its sessions hear of it."""

    @property
    def name(self) -> str:
        """The other side's address."""
        return self._stream.peer_name

    @property
    def recorder(self) -> Recorder:
        """Where the events of this connection go."""
        return self._recorder

    @property
    def round_trip_s(self) -> float:
        """The smoothed round trip in seconds (SPEC 1.4); 0 before the first echo."""
        return self.rtt.average or 0.0

    @property
    def connection(self) -> Connection:
        """The protocol state, for what the other side said of itself and for statistics."""
        return self._connection

    # Sending.

    def send(self, message: Message) -> int:
        """Write a message now and return the bytes it took.

        Nothing is written once the connection, or the session the message belongs to, has ended:
        whoever works on the session hears of that through `lost`.
        """
        if self._connection.state is not State.OPEN:
            return 0
        if isinstance(message, SessionMessage) and message.session not in self._sessions:
            return 0
        self._say(message)
        return self._connection.message_bytes

    def _say(self, message: Message) -> None:
        self._write(self._connection.send(message))
        self.pacing.said()
        self._record(MessageSent, message, self._connection.message_bytes)

    def _write(self, data: bytes) -> None:
        if data:
            self._stream.write(data)

    async def drain(self) -> None:
        """Wait while too much is queued for sending; a lost connection is not waited for."""
        await self.pacing.drained()
        await self._drain_stream()

    async def _drain_stream(self) -> None:
        with suppress(LinkError):
            await self._stream.drain()

    def open(self, session: Session, message: Callable[[int], Open]) -> int:
        """Start a session of ours: `message` makes its first message from the number it gets."""
        number = self._next_session
        self._next_session += 1
        self._sessions[number] = session
        self.send(message(number))
        self._wake_probe.set()
        return number

    def close(
        self,
        number: int,
        reason: Reason,
        text: str = "",
        retry_s: float = 0.0,
        attribution: Attribution | None = None,
    ) -> None:
        """End one session, if it is still open; who is busy says when to come back."""
        if self._connection.session_state(number) is not SessionState.NONE:
            self._say(Close(number, reason, text, int(1000 * retry_s), attribution))
        self._sessions.pop(number, None)

    # The life of the connection.

    async def handshake(self) -> None:
        """Agree with the other side, or raise HandshakeError or ConnectionLostError in time."""
        try:
            async with asyncio.timeout(self._timeouts.handshake_s):
                self._flush()
                while self._connection.state not in (State.OPEN, State.CLOSED):
                    self._early += await self._receive_once()
            if self._connection.state is State.CLOSED:  # opened and ended by what came at once
                last = self._early[-1][0]
                why = last.text if isinstance(last, Goodbye) else ""
                what = f"{self.name} ended the connection as soon as it began"
                raise ConnectionLostError(f"{what}: {why}" if why else what)
        except TimeoutError:
            await self._close_stream()
            raise ConnectionLostError(
                f"{self.name} did not complete the handshake in {self._timeouts.handshake_s:g} s: "
                "is it dragonrt that listens there?"
            ) from None
        except BaseException:  # cancelled or refused alike: say the last word, leave no stream open
            self._flush()
            await self._close_stream()
            raise

    async def run(self) -> None:
        """Work until the connection ends; sessions hear of it through `lost`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                early, self._early = self._early, []
                for event, size in early:
                    self._handle(event, size)
                probes = tasks.create_task(self._probe(), name="probe")
                cadence = tasks.create_task(self.pacing.run(), name="cadence")
                await self._receive_until_end()
                probes.cancel()
                cadence.cancel()
                self._lose_sessions()
        except* ConnectionLostError as group:
            self.lost_reason = str(group.exceptions[0])
        finally:
            self._lose_sessions()
            self._end(Goodbye(Reason.SHUTDOWN, "this side ends"))
            await self._close_stream()

    async def _receive_until_end(self) -> None:
        while self._connection.state is State.OPEN:
            try:
                for event, size in await self._receive_once():
                    self._handle(event, size)
            except RemoteProtocolError as error:
                log.debug("connection with %s closed: %s", self.name, error)
                self.lost_reason = str(error)
                self._flush()

    async def _receive_once(self) -> list[tuple[Event, int]]:
        """The next events, each with the bytes it took on the wire."""
        try:
            data = await self._stream.receive()
        except LinkError as error:
            data = b""
            self.lost_reason = str(error)
        self._heard_s = self._loop.time()
        events = self._connection.receive_data(data) if data else self._connection.eof()
        self._flush()
        return list(zip(events, self._connection.event_bytes, strict=True))

    def _handle(self, event: Event, size: int) -> None:
        self._record(MessageReceived, event, size)
        match event:
            case Pong():
                self._take_echo(event)
            case Goodbye():
                self.lost_reason = self.lost_reason or event.text or event.reason.value
            case Open():
                self._accept(event)
            case Hello():
                pass
            case _:
                self._deliver(event)

    def _record(
        self, event: type[MessageSent | MessageReceived], message: Message, size: int
    ) -> None:
        session = message.session if isinstance(message, SessionMessage) else 0
        step = message.step if isinstance(message, Draft | Target | Block) else None
        round_ = message.round if isinstance(message, Block | Verdict | Upload) else None
        name = type(message).__name__.lower()
        self._recorder.event(session, event(name, size, step, round_))

    def _flush(self) -> None:
        self._write(self._connection.data_to_send())

    async def refuse(self, error: BusyError) -> None:
        """End a connection that has just been agreed on."""
        self._end(Goodbye(error.reason, error.text))
        await self._close_stream()

    def leave(self) -> None:
        """End the connection, which needs no longer be: `run` returns."""
        self._end(Goodbye(Reason.SHUTDOWN, "this side ends"))
        self._stream.close()

    def _end(self, goodbye: Goodbye) -> None:
        if self._connection.state is State.OPEN:
            self._stream.write(self._connection.send(goodbye))

    async def _close_stream(self) -> None:
        self._stream.close()
        await self._stream.wait_closed()

    # Sessions.

    def _accept(self, message: Open) -> None:
        if self._answerer is None:
            self.close(message.session, Reason.UNSUPPORTED, "this side only asks")
            return
        try:
            session, work = self._answerer(self, message)
        except BusyError as error:
            self.close(message.session, error.reason, error.text, error.retry_s)
            return
        except DragonError as error:
            self.close(message.session, Reason.UNSUPPORTED, str(error))
            return
        self._sessions[message.session] = session
        self._wake_probe.set()
        self._tasks.create_task(
            self._guard(message.session, session, work), name=f"session {message.session}"
        )

    async def _guard(self, number: int, session: Session, work: Coroutine[Any, Any, None]) -> None:
        """A session's failure ends that session, with its reason, and nothing else."""
        failure: str | BusyError | None = None
        try:
            await work
        except BusyError as error:
            failure = error
        except DragonError as error:
            failure = str(error)
        except Exception:  # a defect in one session must not end the others
            log.exception("session %d failed", number)
            failure = "an internal error; the other side's log has it"
        finally:
            if self._sessions.get(number) is session:  # its number may be another's by now
                if isinstance(failure, BusyError):
                    self.close(number, failure.reason, failure.text, failure.retry_s)
                elif failure is not None:
                    self.close(number, Reason.ERROR, failure)
                self._sessions.pop(number, None)

    def _deliver(self, message: SessionMessage) -> None:
        session = self._sessions.get(message.session)
        if session is None:
            return
        if isinstance(message, Close):
            del self._sessions[message.session]
            session.closed(message)
            return
        try:
            session.receive(message)
        except DragonError as error:
            self.close(message.session, Reason.ERROR, str(error))
            session.closed(Close(message.session, Reason.ERROR, str(error)))

    def _lose_sessions(self) -> None:
        self.on_end()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.lost(self.lost_reason or "the connection ended")

    # Probes.

    async def _probe(self) -> None:
        """Echo frames: round trip, now and then bandwidth, and whether the other side lives."""
        burst, timeouts = False, self._timeouts
        while True:
            if self._loop.time() - self._heard_s > self._timeouts.silence_s:
                silence_s = self._timeouts.silence_s
                text = f"nothing was heard from {self.name} for {silence_s:g} s"
                self._end(Goodbye(Reason.IDLE, text))
                raise ConnectionLostError(text)
            self._ping(b"\0" * BURST_BYTES if burst else b"")
            burst = not burst and any(
                session.times_bandwidth for session in self._sessions.values()
            )
            self._wake_probe.clear()
            try:
                async with asyncio.timeout(
                    timeouts.probe_s if self._sessions else timeouts.keep_alive_s
                ):
                    await self._wake_probe.wait()
            except TimeoutError:
                continue

    def _ping(self, padding: bytes) -> None:
        self._sequence += 1
        self._padded = {self._sequence: bool(padding), **self._padded}
        while len(self._padded) > 16:
            self._padded.popitem()
        self.send(Ping(self._sequence, int(self._loop.time() * 1e6), padding))

    def _take_echo(self, echo: Pong) -> None:
        now_s, sent_s = self._loop.time(), echo.time_us / 1e6
        padded = self._padded.pop(echo.sequence, None)
        if padded is False:
            self.rtt.add(sent_s, now_s)
            self._recorder.event(0, LinkProbed(rtt=self.rtt.latest))
        elif padded and self.rtt.latest is not None:
            self.bandwidth.add(echo.received, now_s - sent_s - self.rtt.latest)
            self._recorder.event(0, LinkProbed(bandwidth=self.bandwidth.latest))
        for session in list(self._sessions.values()):
            session.measured()
