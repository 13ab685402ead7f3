"""One other side of an answer: its session on the connection that there is now."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.modes import mode as modes
from dragonrt.node.connections.hosts import Route
from dragonrt.node.connections.peer import Peer, Session
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import End, Reason

if TYPE_CHECKING:
    from dragonrt.node.answers.driver import Driver

CONGESTED_BYTES = 64 * 1024
"""With this many sent bytes not received yet, no work is started."""


class AnswerSession(Session):
    """One other side of an answer: its session on the current connection.

    `route` replaces a lost connection; a cloud has none. `gone` is set when a new session is
    needed, after `retry_s` seconds if the other side was busy; never after `over`. `weights` is its
    model's fingerprint, `attribution` its sources. `concluded` waits for this side's.
    """

    def __init__(self, driver: "Driver", name: str, route: Route | None) -> None:
        self.name = name
        self.route = route
        self.number = 0
        self.attribution: wire.Attribution | None = None
        self.concluded: Peer | None = None
        self.gone = asyncio.Event()
        self.retry_s = 0.0
        self.over = False
        self.weights: str | None = None
        self._opened = False
        self._closed = asyncio.Event()
        self._evidence: str | None = None
        self._driver = driver
        self._peer: Peer | None = None
        self._unread = 0
        self._draining: asyncio.Task[None] | None = None

    # What the peer calls.

    @property
    @override
    def times_bandwidth(self) -> bool:
        return self._driver.mode.times_bandwidth

    @override
    def measured(self) -> None:
        if self._peer is not None:
            bandwidth = self._peer.bandwidth.average
            self._driver.feed(modes.Measured(self.name, self._peer.round_trip_s, bandwidth))

    @override
    def doubted(self) -> None:
        other = self.route.peer if self.route is not None else None
        if other is None or other is self._peer or other.doubtful:
            return
        self.close(end := End(Reason.IDLE, "nothing is heard from this host"))
        self.gone.set()
        self._driver.feed(modes.Left(self.name, end, True))

    @override
    def receive(self, message: wire.SessionMessage) -> None:
        if self._driver.over.is_set() and self.route is not None:
            return  # the device's answer is complete
        if isinstance(message, wire.Conclude):
            if self._peer is not None:
                self.concluded = self._peer
            self._left(End(Reason.FINISHED, "the answer is complete"), returns=False)
            return
        if isinstance(message, wire.Opened):
            if self._evidence not in (None, message.evidence):
                raise DragonError("its documents have changed since the answer began")
            self._opened, self._evidence = True, message.evidence
        self._driver.feed(modes.Received(self.name, message))

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
            returns = returns and self.route is not None
            if returns:
                self.gone.set()
            self._driver.feed(modes.Left(self.name, end, returns))

    # What the driver calls.

    @property
    def took_part(self) -> bool:
        """Whether the other side ever opened the session."""
        return self._evidence is not None

    @property
    def congested(self) -> bool:
        """Whether too many sent bytes are not received yet."""
        return self._draining is not None

    def attach(self, peer: Peer, number: int) -> None:
        """Use the session of that number, which is open on the connection."""
        self._peer, self.number, self._opened = peer, number, False
        self.gone.clear()
        self.retry_s = 0.0
        self._closed.clear()
        self.measured()

    def _detach(self) -> Peer | None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self._driver.rtt_s = max(self._driver.rtt_s, peer.round_trip_s)
            self._closed.set()
        return peer

    def open(self, peer: Peer, message: wire.Open) -> bool:
        """Open a session on the connection, and use it; False if the message may not leave."""
        passes = self._driver.lets_out(message)
        if passes:
            peer.open(self, message)
            self.attach(peer, message.session)
        return passes

    def send(self, message: wire.SessionMessage) -> None:
        """Send a message, if the session is open and the message may leave this side."""
        if self._peer is None or not self._driver.lets_out(message):
            return
        self._unread += self._peer.send(message)
        if self._unread > CONGESTED_BYTES and self._draining is None:
            self._draining = asyncio.create_task(self._drain(self._peer), name="drain")

    def close(self, end: End) -> None:
        """End the session on its connection, without an input to the mode."""
        peer = self._detach()
        if peer is not None:
            peer.close(self.number, end)

    def fail(self, end: End) -> None:
        """End the session, and do not resume it: the other side broke it."""
        self.close(end)
        self._driver.feed(modes.Left(self.name, end, False))

    async def conclude(self) -> None:
        """End the session of a complete answer; wait a while for the other side's attribution."""
        if self._peer is not None and self._opened:
            self.send(wire.Conclude(self.number))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._driver.timeouts.rejoin_s):
                    await self._closed.wait()
        self.close(End(Reason.FINISHED, ""))

    def attribute(self, found: wire.Attribution | None) -> None:
        """Close the session of a complete answer, if the other side has asked for that."""
        if self.concluded is not None:
            self.concluded.close(self.number, End(Reason.FINISHED, ""), attribution=found)
            self.concluded = None

    async def wait_closed(self) -> None:
        """Wait until the other side has closed the session. Raises DragonError if it does not."""
        try:
            async with asyncio.timeout(self._driver.timeouts.answer_s):
                await self._closed.wait()
        except TimeoutError:
            raise DragonError("the other side did not close the complete answer") from None

    async def settle(self) -> None:
        """Cancel and await the session's tasks."""
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.gather(self._draining, return_exceptions=True)

    async def _drain(self, peer: Peer) -> None:
        seconds = self._driver.timeouts.answer_s
        try:
            async with asyncio.timeout(seconds):
                await peer.drain()
        except TimeoutError:
            if self._peer is peer:
                text = f"the other side took nothing in for {seconds:g} s"
                self.fail(End(Reason.IDLE, text))
        finally:
            self._unread, self._draining = 0, None
            self._driver.feed()
