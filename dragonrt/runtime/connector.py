"""The device's connection to the cloud: made at the start, made again with back-off when lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.patience import USUAL, BackOff, Patience
from dragonrt.runtime.peer import Peer
from dragonrt.wire.reasons import HandshakeError, Reason

PASSING = frozenset({Reason.LOST, Reason.SHUTDOWN, Reason.BUSY, Reason.ERROR})
"""Ends of a handshake after which another one may succeed."""

log = logging.getLogger("dragonrt")


class Reachable(Protocol):
    """How a device gets to the other side of an answer, and there again: over one host, or many."""

    @property
    def peer(self) -> Peer | None:
        """The living connection, if there is one."""

    @property
    def connected(self) -> bool: ...

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
    """Implements Reachable: keeps one Peer alive, which `dial` makes on a fresh stream."""

    def __init__(self, dial: Callable[[], Awaitable[Peer]], patience: Patience = USUAL) -> None:
        self._dial = dial
        self._patience = patience
        self._peer: Peer | None = None
        self._connected = asyncio.Event()
        self._hurry = asyncio.Event()
        self._back_off = BackOff(patience)
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
        """The first connection; raises the error that says why there is none."""
        peer = await self._dial()
        await peer.handshake()
        self._use(peer)

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        """The living connection, waiting for it up to `timeout_s`; None if it does not come."""
        try:
            async with asyncio.timeout(timeout_s):
                while (peer := self.peer) is None:  # it may be lost again before we wake
                    await self._connected.wait()
                return peer
        except TimeoutError:
            return None

    async def reach(self) -> Peer | None:
        """The living connection, dialled now if it is lost; None if that takes too long."""
        self.hurry()
        return self.peer or await self.wait_connected(self._patience.reach_s)

    def hurry(self) -> None:
        """Somebody asks: a lost connection is dialled now."""
        self._hurry.set()

    async def run(self) -> None:
        """Work on the connection, and on those that follow it, until cancelled.

        Ends by itself only when the cloud refuses the handshake: trying again would not help.
        """
        clock = asyncio.get_running_loop().time
        while True:
            if self._peer is not None:
                since_s = clock()
                await self._peer.run()
                self._back_off.lasted(clock() - since_s)
                log.info("connection lost: %s", self._peer.lost_reason)
                self._forget(self._peer)
            try:
                self._use(await self._dial_again())
            except HandshakeError as error:
                log.warning("not connecting again: %s", error)
                return

    def _use(self, peer: Peer) -> None:
        peer.on_end = self._connected.clear
        self._peer = peer
        self._connected.set()
        self.on_connected()

    def _forget(self, peer: Peer) -> None:
        statistics = peer.connection.statistics()
        self._sent += statistics.bytes_sent
        self._received += statistics.bytes_received
        self._padding = self.padding()
        self._peer = None
        self._connected.clear()

    async def _dial_again(self) -> Peer:
        while True:
            await self._pause(self._back_off.take())
            try:
                peer = await self._dial()
                await peer.handshake()
                return peer
            except DragonError as error:
                if isinstance(error, HandshakeError) and error.reason not in PASSING:
                    raise
                log.debug("cannot reconnect yet: %s", error)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not while somebody asks."""
        self._hurry.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass
