"""Keep a connection to one other side: dial it again, with back-off, when it is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from dragonrt.errors import DragonError
from dragonrt.link.stream import TlsError
from dragonrt.node.connections.peer import ENDED, Peer
from dragonrt.timeouts import USUAL, BackOff, Timeouts
from dragonrt.traces.events import Noticed, NoticeKind, OnNotice
from dragonrt.wire.connection import Traffic
from dragonrt.wire.reasons import End, HandshakeError, Reason

PASSING = frozenset({Reason.LOST, Reason.SHUTDOWN, Reason.BUSY, Reason.ERROR})
"""Reasons of a failed handshake after which another one may succeed."""


class NotConnectedError(DragonError):
    """A question needs another side to which there has been no connection yet."""


def mistaken(error: BaseException | None) -> bool:
    """Return whether a dialling error is permanent: wrong key, certificate, version or model."""
    if isinstance(error, HandshakeError):
        return error.reason not in PASSING
    return isinstance(error, TlsError)


class Connector:
    """Keeps one other side connected: `run` calls `dial` to make a Peer whenever there is none.

    `on_notice` gets a notice when the connection to the side named `who` is lost, back, or refused
    for a new reason. `connections` counts connections so far; `absence` is why none is live, or "".
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[Peer]],
        timeouts: Timeouts = USUAL,
        on_notice: OnNotice = lambda notice: None,
        who: str = "the cloud",
    ) -> None:
        self.connections = 0
        self.absence = ""
        self._timeouts = timeouts
        self._waiting = 0  # answers, for which it dials more often
        self._back = asyncio.Event()  # set, and replaced by another, at each connection
        self._dial = dial
        self._on_notice = on_notice
        self._who = who
        self._peer: Peer | None = None
        self._hurry = asyncio.Event()
        self._back_off = BackOff(timeouts)
        self._before = Traffic()

    @property
    def peer(self) -> Peer | None:
        return None if self._peer is None or self._peer.ended else self._peer

    @property
    def connected(self) -> bool:
        return self.peer is not None

    @property
    def reconnections(self) -> int:
        return max(0, self.connections - 1)

    def traffic(self) -> Traffic:
        """Return the bytes sent and received so far, over all connections."""
        present = Traffic() if self._peer is None else self._peer.connection.traffic()
        return Traffic.total((self._before, present))

    async def wait_ticks_over(self) -> None:
        """Before a disconnect, wait at most `idle_s` until constant-rate frames are all sent."""
        if self._peer is not None:
            with suppress(TimeoutError):  # a session stays open
                await asyncio.wait_for(self._peer.pacing.wait_over(), self._timeouts.idle_s)

    async def connect(self) -> None:
        """Dial once, now, before `run` starts. Raises the error that prevents the connection."""
        try:
            await self._dial_once()
        except DragonError as error:
            self._back_off.take()
            self.absence = str(error)
            raise

    def hurry(self) -> None:
        """Make `run` dial a lost connection now, without a pause, as a question needs it."""
        self._hurry.set()

    async def reach(self) -> Peer | None:
        """Return a live connection, dialled now if it is lost; None if that takes `reach_s`."""
        self.hurry()
        return await self.wait_connected(self._timeouts.reach_s)

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        """Return a live connection, waiting for it up to `timeout_s`; None if there is none."""
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                while (peer := self.peer) is None:
                    await self._back.wait()
                return peer
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1

    async def run(self) -> None:
        """Keep a connection until cancelled: dial while there is none, even after a refusal."""
        clock = asyncio.get_running_loop().time
        while True:
            if self._peer is not None:
                since_s = clock()
                await self._peer.run()
                self._back_off.lasted(clock() - since_s)
                self._before = self.traffic()
                end, self._peer = self._peer.end or ENDED, None
                self.absence = end.text
                text = f"the connection to {self._who} is lost, and is tried again: {end}"
                self._on_notice(Noticed(NoticeKind.LOST, text, end.reason))
            await self._dial_again()

    async def _dial_once(self) -> None:
        peer = await self._dial()
        await peer.handshake()
        self._peer = peer
        self.connections += 1
        if self.absence:
            self.absence = ""
            text = f"{self._who} is connected{' again' if self.connections > 1 else ''}"
            self._on_notice(Noticed(NoticeKind.CONNECTED, text))
        self._back.set()
        self._back = asyncio.Event()

    async def _dial_again(self) -> None:
        while True:
            await self._pause(self._back_off.take())
            try:
                return await self._dial_once()
            except DragonError as error:
                answered = isinstance(error, HandshakeError) and error.reason is not Reason.LOST
                if (answered or mistaken(error)) and str(error) != self.absence:
                    text = f"{self._who} does not accept this device: {error}"
                    end = End.of(error, Reason.ERROR)
                    self._on_notice(Noticed(NoticeKind.REFUSED, text, end.reason))
                self.absence = str(error)

    async def _pause(self, seconds: float) -> None:
        """Wait; return early after `hurry`, and soon while an answer waits."""
        self._hurry.clear()
        if self._waiting:
            seconds = min(seconds, self._timeouts.probe_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()


@asynccontextmanager
async def kept(*links: Connector) -> AsyncIterator[None]:
    """Keep these connectors connected within the async context; disconnect them at its end."""
    keepers = [asyncio.create_task(link.run(), name="connector") for link in links]
    try:
        yield
    finally:
        # Ending a constant rate early would reveal the end of the answer.
        await asyncio.gather(*(link.wait_ticks_over() for link in links))
        await asyncio.sleep(0)  # a task that is cancelled before it has begun closes nothing
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
