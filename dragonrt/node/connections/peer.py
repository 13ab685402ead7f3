"""One authenticated connection to the other side, with its sessions, sender, reader and probes.

It hands each message to its session at once, so that a slow session never delays another.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from dragonrt.control.scheduler import BandwidthEstimator, RttEstimator
from dragonrt.errors import DragonError, LinkError
from dragonrt.link.stream import HIGH_WATER, Stream, TlsError
from dragonrt.privacy.constant_rate import ConstantRate
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.events import LinkProbed, MessageReceived, MessageSent
from dragonrt.traces.file import Recorder
from dragonrt.wire import messages as wire
from dragonrt.wire.connection import Connection, Event, State
from dragonrt.wire.reasons import BusyError, End, Reason, RemoteProtocolError, WireError
from dragonrt.wire.sessions import SessionState

BURST_BYTES = 2048
"""Padding of the probe that times the bandwidth: the delay it adds to an empty one."""
PROBES_KEPT = 16
ENDED = End(Reason.LOST, "the connection ended")
"""The end of a connection without a known cause."""
LEAVING = End(Reason.SHUTDOWN, "this side ends")

log: logging.Logger = logging.getLogger("dragonrt")


class ConnectionLostError(DragonError):
    """The connection to the other side ended."""


class Session(Protocol):
    """The interface of an answer's session to its Peer, which calls it on the event loop."""

    times_bandwidth: bool
    """Whether the mode uses the bandwidth, so that timed bursts are worth their bytes."""

    def measured(self) -> None:
        """Handle new estimates of the link: the peer's `round_trip_s` and `bandwidth`."""

    def receive(self, message: wire.SessionMessage) -> None:
        """Handle a message. A DragonError that this raises closes the session with its text."""

    def closed(self, close: wire.Close) -> None:
        """Handle the session's end by a Close, or by a received message that was not allowed."""

    def lost(self, end: End) -> None:
        """Handle the session's end by the loss of the whole connection, with its reason `end`."""


Answerer = Callable[["Peer", wire.Open], tuple[Session, Coroutine[Any, Any, None]]]
"""Makes the session that the other side opens, and the coroutine that works on it."""


class Peer:
    """One connection to the other side, and its sessions. Await `handshake`, then `run`."""

    def __init__(
        self,
        stream: Stream,
        connection: Connection,
        recorder: Recorder,
        answerer: Answerer | None = None,
        timeouts: Timeouts = USUAL,
    ) -> None:
        self.name = stream.peer_name
        self.connection = connection
        self.recorder = recorder
        self.rtt = RttEstimator()
        self.bandwidth = BandwidthEstimator()
        self.end: End | None = None
        """The end of the connection, if it has ended."""
        self.pacing = ConstantRate(connection, self._write, self._drain_stream)
        self.ended = False
        """Whether the connection has ended; set before its sessions end."""
        self._stream = stream
        self._timeouts = timeouts
        self._answerer = answerer
        self._sessions: dict[int, Session] = {}
        self._next_session = 1
        self._early: list[tuple[Event, int]] = []  # came together with the end of the handshake
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._replied_bytes = 0  # that have left
        self._wake_probe = asyncio.Event()
        self._sequence = 0
        self._padded: dict[int, bool] = {}  # by probe

    @property
    def round_trip_s(self) -> float:
        """The smoothed round trip in seconds (SPEC 1.4); 0 before the first echo."""
        return self.rtt.average or 0.0

    # Sending.

    def send(self, message: wire.Message) -> int:
        """Send a message; return its size in bytes, 0 if the session or connection is closed."""
        if self.connection.state is not State.OPEN:
            return 0
        if isinstance(message, wire.SessionMessage) and message.session not in self._sessions:
            return 0
        return self._send(message)

    def _send(self, message: wire.Message) -> int:
        size = self.connection.queue(message)
        self._flush()
        self.pacing.queued()
        self._record(MessageSent, message, size)
        return size

    def _write(self, data: bytes) -> None:
        if data:
            self._stream.write(data)

    def _flush(self) -> None:
        self._write(self.connection.data_to_send())

    async def drain(self) -> None:
        """Wait until few bytes are queued for sending, or the connection is lost."""
        await self.pacing.drained()
        await self._drain_stream()

    async def _drain_stream(self) -> None:
        with suppress(LinkError):
            await self._stream.drain()

    def next_number(self) -> int:
        self._next_session += 1
        return self._next_session - 1

    def open(self, session: Session, message: wire.Open) -> None:
        """Open a session by sending `message`; `session` then handles what comes back."""
        self._sessions[message.session] = session
        self.send(message)
        self._wake_probe.set()

    def close(
        self,
        number: int,
        end: End,
        retry_s: float = 0.0,
        attribution: wire.Attribution | None = None,
    ) -> None:
        """Send a Close for session `number`, if open: reason, retry time, sources of the answer."""
        if self.connection.session_state(number) is not SessionState.NONE:
            retry_ms = int(1000 * retry_s)
            self._send(wire.Close(number, end.reason, end.text, retry_ms, attribution))
        self._sessions.pop(number, None)

    # The life of the connection.

    async def handshake(self) -> None:
        """Do the handshake, or close the stream and raise HandshakeError or ConnectionLostError."""
        try:
            async with asyncio.timeout(self._timeouts.handshake_s):
                self._flush()
                while self.connection.state not in (State.OPEN, State.CLOSED):
                    self._early += await self._receive_once()
            if self.connection.closed:  # opened and ended by what came at once
                last = self._early[-1][0]
                why = f": {last.text}" if isinstance(last, wire.Goodbye) and last.text else ""
                raise ConnectionLostError(
                    f"{self.name} ended the connection as soon as it began{why}"
                )
        except BaseException as error:  # also if cancelled: send the Goodbye, close the stream
            self._flush()
            self._stream.close()
            await self._stream.wait_closed()
            if not isinstance(error, TimeoutError):
                raise
            raise ConnectionLostError(
                f"{self.name} did not complete the handshake in {self._timeouts.handshake_s:g} s: "
                "is it dragonrt that listens there?"
            ) from None

    async def run(self) -> None:
        """Receive messages and probe the link until the connection ends. Call after `handshake`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for event, size in self._early:
                    self._handle(event, size)
                beside = (self._probe(), self.pacing.run())
                running = [tasks.create_task(each, name="connection") for each in beside]
                await self._receive_until_end()
                for task in running:
                    task.cancel()
                self._lose_sessions()
        except* ConnectionLostError as group:
            self.end = self.end or End(Reason.LOST, str(group.exceptions[0]))
        finally:
            self._lose_sessions()
            self.leave(self.end or LEAVING)
            await self._stream.wait_closed()

    async def _receive_until_end(self) -> None:
        while self.connection.state is State.OPEN:
            try:
                for event, size in await self._receive_once():
                    self._handle(event, size)
            except RemoteProtocolError as error:
                log.debug("connection with %s closed: %s", self.name, error)
                self.end = End(error.reason, error.text)
                self._flush()
            await self._wait_for_reader()

    async def _wait_for_reader(self) -> None:
        """Wait until many replies have left; end the connection if they do not.

        Fewer do not wait: two sides that both send much would wait for each other.
        """
        replied, bound_s = self.connection.replied_bytes, self._timeouts.answer_s
        if replied - self._replied_bytes < HIGH_WATER:
            return
        self._heard_s = self._loop.time() + bound_s  # no silence: what it sends is not read
        try:
            async with asyncio.timeout(bound_s):
                await self.drain()
        except TimeoutError:
            text = f"{self.name} sends, and took in no reply for {bound_s:g} s"
            self.end = End(Reason.IDLE, text)
            self.leave(self.end)
        self._replied_bytes, self._heard_s = replied, self._loop.time()

    async def _receive_once(self) -> list[tuple[Event, int]]:
        """Return the next events, each with the bytes it took on the wire."""
        data = b""
        try:
            data = await self._stream.receive()
        except LinkError as error:
            if isinstance(error, TlsError) and self.connection.state is not State.OPEN:
                raise
            self.end = End(Reason.LOST, str(error))
        self._heard_s = self._loop.time()
        received = self.connection.receive_data(data) if data else self.connection.eof()
        self._flush()
        return received

    def _handle(self, event: Event, size: int) -> None:
        self._record(MessageReceived, event, size)
        match event:
            case wire.Hello():
                pass
            case wire.Pong():
                self._take_echo(event)
            case wire.Goodbye():
                self.end = self.end or End(event.reason, event.text or event.reason.value)
            case wire.Open():
                self._accept(event)
            case _:
                self._deliver(event)

    def _record(
        self, event: type[MessageSent | MessageReceived], message: wire.Message, size: int
    ) -> None:
        session = message.session if isinstance(message, wire.SessionMessage) else 0
        step = getattr(message, "step", None)
        round_ = getattr(message, "round", None)
        self.recorder.event(session, event(type(message).__name__.lower(), size, step, round_))

    def leave(self, end: End = LEAVING) -> None:
        """Send a Goodbye for `end` and close the stream, so that `run` returns."""
        if self.connection.state is State.OPEN:
            self._stream.write(self.connection.send(wire.Goodbye(end.reason, end.text)))
        self._stream.close()

    async def refuse(self, error: BusyError) -> None:
        """Refuse a device after its handshake: send a Goodbye for `error`, close the stream."""
        self.leave(End(error.reason, error.text))
        await self._stream.wait_closed()

    # Sessions.

    def _accept(self, message: wire.Open) -> None:
        number = message.session
        try:
            if self._answerer is None:
                raise DragonError("a device accepts no sessions")
            session, work = self._answerer(self, message)
        except DragonError as error:
            self._close_failed(number, error, Reason.UNSUPPORTED)
            return
        self._sessions[number] = session
        self._wake_probe.set()
        self._tasks.create_task(self._guard(number, session, work), name=f"session {number}")

    async def _guard(self, number: int, session: Session, work: Coroutine[Any, Any, None]) -> None:
        """End only this session, with the reason, if its work fails."""
        failure: DragonError | None = None
        try:
            await work
        except DragonError as error:
            failure = error
        except Exception:  # a defect in one session must not end the others
            log.exception("session %d failed", number)
            text = "an internal error; the other side's log has it"
            failure = WireError(Reason.INTERNAL, text)
        finally:
            if self._sessions.get(number) is session:  # its number may be another's by now
                del self._sessions[number]
                if failure is not None:
                    self._close_failed(number, failure, Reason.ERROR)

    def _close_failed(self, number: int, error: DragonError, usual: Reason) -> None:
        retry_s = error.retry_s if isinstance(error, BusyError) else 0.0
        self.close(number, End.of(error, usual), retry_s)

    def _deliver(self, message: wire.SessionMessage) -> None:
        session = self._sessions.get(message.session)
        if session is None:
            return
        if isinstance(message, wire.Close):
            del self._sessions[message.session]
            session.closed(message)
            return
        try:
            session.receive(message)
        except DragonError as error:
            end = End.of(error, Reason.ERROR)
            self.close(message.session, end)
            session.closed(wire.Close(message.session, end.reason, end.text))

    def _lose_sessions(self) -> None:
        self.ended = True
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.lost(self.end or ENDED)

    # Probes.

    async def _probe(self) -> None:
        """Send echo frames, which measure round trip and bandwidth and detect a lost connection."""
        burst, timeouts = False, self._timeouts
        while True:
            if self._loop.time() - self._heard_s > timeouts.silence_s:
                text = f"nothing was heard from {self.name} for {timeouts.silence_s:g} s"
                self.end = End(Reason.IDLE, text)
                # Not `leave` here: if its body ended first, a TaskGroup leaves its task cancelling.
                raise ConnectionLostError(text)
            self._sequence += 1
            self._padded[self._sequence] = burst
            self._padded.pop(self._sequence - PROBES_KEPT, None)
            padding = bytes(BURST_BYTES if burst else 0)
            self.send(wire.Ping(self._sequence, int(self._loop.time() * 1e6), padding))
            burst = not burst and any(each.times_bandwidth for each in self._sessions.values())
            self._wake_probe.clear()
            wait_s = timeouts.probe_s if self._sessions else timeouts.keep_alive_s
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake_probe.wait()

    def _take_echo(self, echo: wire.Pong) -> None:
        now_s, sent_s = self._loop.time(), echo.time_us / 1e6
        padded = self._padded.pop(echo.sequence, None)
        if padded is False:
            self.rtt.add(sent_s, now_s)
            self.recorder.event(0, LinkProbed(rtt=self.rtt.latest))
        elif padded and self.rtt.latest is not None:
            self.bandwidth.add(echo.received, now_s - sent_s - self.rtt.latest)
            self.recorder.event(0, LinkProbed(bandwidth=self.bandwidth.latest))
        for session in list(self._sessions.values()):
            session.measured()
