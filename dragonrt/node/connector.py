"""The device's connection to the cloud: dialled with back-off while there is none."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from dragonrt.errors import DragonError
from dragonrt.link.stream import TlsError
from dragonrt.modes.question import Question
from dragonrt.node.peer import Peer
from dragonrt.timeouts import USUAL, BackOff, Timeouts
from dragonrt.wire.reasons import HandshakeError, Reason

PASSING = frozenset({Reason.LOST, Reason.SHUTDOWN, Reason.BUSY, Reason.ERROR})
"""Ends of a handshake after which another one may succeed."""


class NotConnectedError(DragonError):
    """A question that needs another side, of which none has been reached yet."""


def mistaken(error: BaseException | None) -> bool:
    """Return whether somebody has to change an option before dialling can succeed.

    A wrong key, version, model or certificate is such a mistake; a cloud that is not there is none.
    """
    if isinstance(error, HandshakeError):
        return error.reason not in PASSING
    return isinstance(error, TlsError) or (error is not None and mistaken(error.__cause__))


class Reachable(Protocol):
    """How a device gets to the other side of an answer, and there again: over one host, or many."""

    @property
    def peer(self) -> Peer | None:
        """The living connection, if there is one."""

    @property
    def connected(self) -> bool: ...

    @property
    def met(self) -> bool:
        """Whether there was ever a connection."""

    @property
    def reconnections(self) -> int:
        """How often a lost connection was made again."""

    @property
    def absence(self) -> str:
        """Why there was no connection when it was last looked for or lost; "" if it never was."""

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, over all connections."""

    def padding(self) -> tuple[int, int]:
        """Of these, the bytes that cells added, sent and received."""

    def for_answer(self, question: Question) -> "Reachable":
        """The way of this answer, from its beginning to its end."""

    def hurry(self) -> None:
        """Somebody asks: a lost connection is dialled now."""

    def put_off(self, seconds: float) -> float:
        """The other side is busy for so long; returns how long until it is worth asking again."""

    async def reach(self) -> Peer | None:
        """The living connection, dialled now if it is lost; None if that takes too long."""

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        """The living connection, waiting for it up to `timeout_s`; None if it does not come."""


class Connector:
    """Implements Reachable: keeps one Peer alive, which `dial` makes on a fresh stream.

    `on_notice` gets one line when the connection is lost, when it is there again, and when the
    other side refuses it for another reason than before; `who` names the other side in it.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[Peer]],
        timeouts: Timeouts = USUAL,
        on_notice: Callable[[str], None] = lambda text: None,
        who: str = "the cloud",
    ) -> None:
        self._dial = dial
        self._timeouts = timeouts
        self._on_notice = on_notice
        self._who = who
        self._made = 0
        self._absence = ""
        self._away = False
        self._waited_for = 0
        self._peer: Peer | None = None
        self._connected = asyncio.Event()
        self._hurry = asyncio.Event()
        self._back_off = BackOff(timeouts)
        self._sent = self._received = 0
        self._padding = (0, 0)
        self.on_connected: Callable[[], None] = lambda: None
        """Called whenever there is a living connection again."""

    @property
    def peer(self) -> Peer | None:
        """The living connection, if there is one."""
        return self._peer if self.connected else None

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    @property
    def met(self) -> bool:
        return self._made > 0

    @property
    def reconnections(self) -> int:
        return max(0, self._made - 1)

    @property
    def absence(self) -> str:
        return self._absence

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, over all connections."""
        sent, received = self._sent, self._received
        if self._peer is not None:
            now = self._peer.connection.statistics()
            sent, received = sent + now.bytes_sent, received + now.bytes_received
        return sent, received

    def padding(self) -> tuple[int, int]:
        """Of these, the bytes that cells added, sent and received."""
        sent, received = self._padding
        if self._peer is not None:
            now = self._peer.connection.statistics()
            sent, received = sent + now.padding_sent, received + now.padding_received
        return sent, received

    async def settled(self) -> None:
        """Until a cadence has used up its budget."""
        if self._peer is not None:
            await self._peer.pacing.wait_over()

    def for_answer(self, question: Question) -> "Connector":
        return self

    def put_off(self, seconds: float) -> float:
        return seconds

    async def connect(self) -> None:
        """Dial once, now; raises the error that says why there is no connection."""
        try:
            peer = await self._dial()
            await peer.handshake()
        except DragonError as error:
            self._back_off.take()
            self._absence, self._away = str(error), True
            raise
        self._use(peer)

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        """The living connection, waiting for it up to `timeout_s`; None if it does not come."""
        self._waited_for += 1
        try:
            async with asyncio.timeout(timeout_s):
                while (peer := self.peer) is None:  # it may be lost again before we wake
                    await self._connected.wait()
                return peer
        except TimeoutError:
            return None
        finally:
            self._waited_for -= 1

    async def reach(self) -> Peer | None:
        """The living connection, dialled now if it is lost; None if that takes too long."""
        self.hurry()
        return self.peer or await self.wait_connected(self._timeouts.reach_s)

    def hurry(self) -> None:
        """Somebody asks: a lost connection is dialled now."""
        self._hurry.set()

    async def run(self) -> None:
        """Work on the connection, and on those that follow it, until cancelled.

        While there is none it is dialled, also after a refusal: who refuses may be mended.
        """
        clock = asyncio.get_running_loop().time
        while True:
            if self._peer is not None:
                since_s = clock()
                await self._peer.run()
                self._back_off.lasted(clock() - since_s)
                self._forget(self._peer)
            self._use(await self._dial_again())

    def _use(self, peer: Peer) -> None:
        peer.on_end = self._connected.clear
        self._peer = peer
        self._made += 1
        self._connected.set()
        if self._away:
            self._away = False
            self._on_notice(f"{self._who} is there{' again' if self.reconnections else ''}")
        self.on_connected()

    def _forget(self, peer: Peer) -> None:
        statistics = peer.connection.statistics()
        self._sent += statistics.bytes_sent
        self._received += statistics.bytes_received
        self._padding = self.padding()
        self._peer = None
        self._connected.clear()
        self._absence, self._away = peer.lost_reason or "the connection ended", True
        self._on_notice(f"{self._who} is lost, and dialled again: {self._absence}")

    async def _dial_again(self) -> Peer:
        while True:
            await self._pause(self._back_off.take())
            try:
                peer = await self._dial()
                await peer.handshake()
                return peer
            except DragonError as error:
                lost = isinstance(error, HandshakeError) and error.reason is Reason.LOST
                refused = mistaken(error) or (isinstance(error, HandshakeError) and not lost)
                if refused and str(error) != self._absence:
                    self._on_notice(f"{self._who} does not let this side in: {error}")
                self._absence = str(error)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not while somebody asks, and not long while an answer waits."""
        self._hurry.clear()
        if self._waited_for:
            seconds = min(seconds, self._timeouts.probe_s)
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass
