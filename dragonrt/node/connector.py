"""The device's connection to one host of the other side: dialled with back-off while there is none.

`hosts` chooses among the connectors of one other side.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from dragonrt.errors import DragonError
from dragonrt.link.stream import TlsError
from dragonrt.node.peer import Peer
from dragonrt.timeouts import USUAL, BackOff, Timeouts
from dragonrt.wire.connection import Traffic
from dragonrt.wire.reasons import HandshakeError, Reason

PASSING = frozenset({Reason.LOST, Reason.SHUTDOWN, Reason.BUSY, Reason.ERROR})
"""Ends of a handshake after which another one may succeed."""


class NotConnectedError(DragonError):
    """A question needs another side, and none has been reached yet."""


def mistaken(error: BaseException | None) -> bool:
    """Return whether an option has to change before dialling can succeed.

    A wrong key, version, model or certificate is such a mistake; an absent cloud is none.
    """
    if isinstance(error, HandshakeError):
        return error.reason not in PASSING
    return isinstance(error, TlsError) or (error is not None and mistaken(error.__cause__))


class Connector:
    """Keeps one Peer alive, which `dial` makes on a fresh stream.

    `on_notice` gets one line when the connection is lost, when it is back, and when the other side
    refuses it for another reason than before; `who` names the other side in it. `connections`
    counts those that were made. `absence` says why there is none; "" while there is one.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[Peer]],
        timeouts: Timeouts = USUAL,
        on_notice: Callable[[str], None] = lambda text: None,
        who: str = "the cloud",
    ) -> None:
        self.timeouts = timeouts
        self.connections = 0
        self.absence = ""
        self.waiters = 0
        """Answers that wait for the connection: it is dialled more often for them."""
        self.on_connected: Callable[[], None] = lambda: None
        """Called whenever there is a living connection again."""
        self._dial = dial
        self._on_notice = on_notice
        self._who = who
        self._peer: Peer | None = None
        self._hurry = asyncio.Event()
        self._back_off = BackOff(timeouts)
        self._before = Traffic()

    @property
    def peer(self) -> Peer | None:
        """The living connection, if there is one."""
        return None if self._peer is None or self._peer.ended else self._peer

    def traffic(self) -> Traffic:
        """Return the bytes so far, over all connections."""
        present = Traffic() if self._peer is None else self._peer.connection.traffic()
        return Traffic.total((self._before, present))

    async def settled(self) -> None:
        """Wait until a constant rate has used up its budget."""
        if self._peer is not None:
            await self._peer.pacing.wait_over()

    async def connect(self) -> None:
        """Dial once, now. Raises the error that says why there is no connection."""
        try:
            await self._dial_once()
        except DragonError as error:
            self._back_off.take()
            self.absence = str(error)
            raise

    def hurry(self) -> None:
        """Dial a lost connection now: a question waits for it."""
        self._hurry.set()

    async def run(self) -> None:
        """Work on the connection, and on those that follow it, until cancelled.

        While there is none it is dialled, also after a refusal: its cause may be mended.
        """
        clock = asyncio.get_running_loop().time
        while True:
            if self._peer is not None:
                since_s = clock()
                await self._peer.run()
                self._back_off.lasted(clock() - since_s)
                self._before = self.traffic()
                self.absence, self._peer = self._peer.lost_reason or "the connection ended", None
                self._on_notice(f"{self._who} is lost, and dialled again: {self.absence}")
            await self._dial_again()

    async def _dial_once(self) -> None:
        peer = await self._dial()
        await peer.handshake()
        self._peer = peer
        self.connections += 1
        if self.absence:
            self.absence = ""
            self._on_notice(f"{self._who} is there{' again' if self.connections > 1 else ''}")
        self.on_connected()

    async def _dial_again(self) -> None:
        while True:
            await self._pause(self._back_off.take())
            try:
                return await self._dial_once()
            except DragonError as error:
                lost = isinstance(error, HandshakeError) and error.reason is Reason.LOST
                refused = mistaken(error) or (isinstance(error, HandshakeError) and not lost)
                if refused and str(error) != self.absence:
                    self._on_notice(f"{self._who} does not let this side in: {error}")
                self.absence = str(error)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not after `hurry`, and not long while an answer waits."""
        self._hurry.clear()
        if self.waiters:
            seconds = min(seconds, self.timeouts.probe_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
