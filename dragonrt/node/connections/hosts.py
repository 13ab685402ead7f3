"""The hosts of one other side: one, or several with the same model and documents.

A Connector keeps the connection to one host; if it is lost, it dials with back-off. Each answer has
its own order of hosts (rendezvous hashing, Thaler and Ravishankar 1998). If a host is lost, its
answers spread over the others, and no other answers move. All hosts must have the model and
documents of the first that is reached; a host with others is not used.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from dragonrt.errors import DragonError
from dragonrt.link.stream import TlsError
from dragonrt.modes.question import Question
from dragonrt.node.connections.peer import ENDED, Peer
from dragonrt.timeouts import USUAL, BackOff, Timeouts
from dragonrt.traces.events import Noticed, OnNotice
from dragonrt.traces.notices import NoticeKind
from dragonrt.wire.connection import Traffic
from dragonrt.wire.reasons import End, HandshakeError, Reason

PASSING = frozenset({Reason.LOST, Reason.SHUTDOWN, Reason.BUSY, Reason.ERROR})
"""Reasons of a failed handshake after which another one may succeed."""

Holdings = tuple[str, str]
"""The fingerprints of a host's model, and of its documents and how they are found."""


class NotConnectedError(DragonError):
    """A question needs another side, and none has been reached yet."""


def mistaken(error: BaseException | None) -> bool:
    """Return whether dialling fails until a key, certificate, version or model is changed."""
    if isinstance(error, HandshakeError):
        return error.reason not in PASSING
    return isinstance(error, TlsError) or (error is not None and mistaken(error.__cause__))


class Connector:
    """Keeps one Peer alive, which `dial` makes on a fresh stream.

    `on_notice` gets one line when the connection is lost or back, and when the other side, named
    `who`, refuses it for a new reason. `connections` counts connections, `waiters` the waiting
    answers, for which it dials more often. `absence` is why there is none. `on_connected` is called
    after each connect.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[Peer]],
        timeouts: Timeouts = USUAL,
        on_notice: OnNotice = lambda notice: None,
        who: str = "the cloud",
    ) -> None:
        self.timeouts = timeouts
        self.connections = 0
        self.absence = ""
        self.waiters = 0
        self.on_connected: Callable[[], None] = lambda: None
        self._dial = dial
        self._on_notice = on_notice
        self._who = who
        self._peer: Peer | None = None
        self._hurry = asyncio.Event()
        self._back_off = BackOff(timeouts)
        self._before = Traffic()

    @property
    def peer(self) -> Peer | None:
        """The live connection, if there is one."""
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
        """Dial once, now. Raises the error that prevents the connection."""
        try:
            await self._dial_once()
        except DragonError as error:
            self._back_off.take()
            self.absence = str(error)
            raise

    def hurry(self) -> None:
        """Dial a lost connection now, because a question waits for it."""
        self._hurry.set()

    async def run(self) -> None:
        """Keep a connection until cancelled: dial while there is none, also after a refusal."""
        clock = asyncio.get_running_loop().time
        while True:
            if self._peer is not None:
                since_s = clock()
                await self._peer.run()
                self._back_off.lasted(clock() - since_s)
                self._before = self.traffic()
                end, self._peer = self._peer.end or ENDED, None
                self.absence = end.text
                text = f"{self._who} is lost, and dialled again: {end}"
                self._on_notice(Noticed(NoticeKind.LOST, text, end.reason))
            await self._dial_again()

    async def _dial_once(self) -> None:
        peer = await self._dial()
        await peer.handshake()
        self._peer = peer
        self.connections += 1
        if self.absence:
            self.absence = ""
            text = f"{self._who} is there{' again' if self.connections > 1 else ''}"
            self._on_notice(Noticed(NoticeKind.CONNECTED, text))
        self.on_connected()

    async def _dial_again(self) -> None:
        while True:
            await self._pause(self._back_off.take())
            try:
                return await self._dial_once()
            except DragonError as error:
                answered = isinstance(error, HandshakeError) and error.reason is not Reason.LOST
                if (answered or mistaken(error)) and str(error) != self.absence:
                    text = f"{self._who} refuses this side: {error}"
                    end = End.of(error, Reason.ERROR)
                    self._on_notice(Noticed(NoticeKind.REFUSED, text, end.reason))
                self.absence = str(error)

    async def _pause(self, seconds: float) -> None:
        """Wait; return early after `hurry`, and soon while an answer waits."""
        self._hurry.clear()
        if self.waiters:
            seconds = min(seconds, self.timeouts.probe_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()


class Hosts:
    """Reaches one other side over its `connectors`, by host in the order of the user."""

    def __init__(
        self,
        connectors: Mapping[str, Connector],
        on_notice: OnNotice = lambda notice: None,
    ) -> None:
        self.connectors = connectors
        self._on_notice = on_notice
        self._holdings: Holdings = ("", "")
        self._holders: set[str] = set()
        self._rejected: dict[str, Holdings] = {}
        self._connecting = False
        self.back = asyncio.Event()
        """Set, and replaced by another, when a host is there again."""
        # Different devices use different orders for one question.
        self._salt = os.urandom(16)
        for name, connector in connectors.items():
            connector.on_connected = partial(self._connected, name)

    @property
    def peer(self) -> Peer | None:
        """Return a live connection to a host with the common model and documents."""
        return next(filter(None, map(self.peer_at, self.connectors)), None)

    @property
    def connected(self) -> bool:
        """Return whether a host with the common model and documents is connected."""
        return self.peer is not None

    @property
    def met(self) -> bool:
        """Return whether there was ever a connection."""
        return any(each.connections for each in self.connectors.values())

    @property
    def reconnections(self) -> int:
        """Return how often a lost connection was restored."""
        return sum(max(0, each.connections - 1) for each in self.connectors.values())

    @property
    def absence(self) -> str:
        """Return why there is no connection to the first host without one."""
        lost = ((name, each.absence) for name, each in self.connectors.items())
        return next((self._of_host(name, text) for name, text in lost if text), "")

    def _of_host(self, name: str, text: str) -> str:
        return f"host {name}: {text}" if len(self.connectors) > 1 else text

    def traffic(self) -> Traffic:
        """Return the bytes so far, over all connections to all hosts."""
        return Traffic.total(connector.traffic() for connector in self.connectors.values())

    async def settled(self) -> None:
        """Wait until the constant rates have used up their budgets."""
        await asyncio.gather(*(each.settled() for each in self.connectors.values()))

    def for_answer(self, question: Question) -> "Route":
        """Return the route of an answer: the same for all of a conversation."""
        begins = question.history[0][0] if question.history else question.prompt

        def weight(host: str) -> bytes:
            return hashlib.sha256(self._salt + f"{host}\n{begins}".encode()).digest()

        return Route(self, sorted(self.connectors, key=weight, reverse=True))

    def hurry(self) -> None:
        """Dial lost connections now, because a question waits for them."""
        for connector in self.connectors.values():
            connector.hurry()

    async def reach(self) -> Peer | None:
        """Return a live connection, dialled now if all are lost; None after `reach_s`."""
        self.hurry()
        timeouts = next(iter(self.connectors.values())).timeouts
        return self.peer or await self.wait_connected(timeouts.reach_s)

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        """Return a live connection, waiting for it up to `timeout_s`; None if there is none."""
        return await Route(self, tuple(self.connectors)).wait_connected(timeout_s)

    async def connect(self) -> None:
        """Connect to all reachable hosts. If none is, raises an error, best a temporary one."""
        self._connecting = True
        attempts = (connector.connect() for connector in self.connectors.values())
        found = await asyncio.gather(*attempts, return_exceptions=True)
        self._connecting = False
        errors: dict[str, DragonError] = {}
        for name, error in zip(self.connectors, found, strict=True):
            if isinstance(error, DragonError):
                errors[name] = error
            elif error is not None:
                raise error
            else:
                self._connected(name)
        if self.peer is None:
            name = min(errors, key=lambda each: mistaken(errors[each]))
            if len(found) == 1:
                raise errors[name]
            raise DragonError(self._of_host(name, str(errors[name]))) from errors[name]
        for name, error in errors.items():
            text = f"going on without the host {name} until it can be reached: {error}"
            self._on_notice(Noticed(NoticeKind.UNREACHED, text))

    async def run(self) -> None:
        """Keep all connections until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, connector in self.connectors.items():
                tasks.create_task(connector.run(), name=f"connector {name}")

    def peer_at(self, name: str) -> Peer | None:
        """Return the live connection to a host, if it has the common model and documents."""
        return self.connectors[name].peer if name in self._holders else None

    def _connected(self, name: str) -> None:
        peer = self.connectors[name].peer
        hello = peer.connection.peer if peer is not None else None
        if hello is None or self._connecting:
            return
        holdings = (hello.weights, hello.corpus)
        self._holders.discard(name)
        alone = not any(map(self.peer_at, self._holders))
        if alone and name not in self._rejected and holdings != self._holdings:
            # The only hosts that had it have changed; the first of them sets it for all.
            self._holders.clear()
            self._holdings = holdings
        if holdings == self._holdings:
            self._holders.add(name)
            self._rejected.pop(name, None)
            self.back.set()
            self.back = asyncio.Event()
        elif self._rejected.get(name) != holdings:
            self._rejected[name] = holdings
            what = "model" if holdings[0] != self._holdings[0] else "documents or settings"
            text = f"the host {name} is not used: its {what} are not those of the others"
            self._on_notice(Noticed(NoticeKind.UNLIKE, text))


class Route:
    """The hosts in the order of one answer, which stays with a host while it is up and not busy."""

    def __init__(self, hosts: Hosts, order: Sequence[str]) -> None:
        self.hosts = hosts
        self._order = order
        self._busy_until_s: dict[str, float] = {}
        self._last: str | None = None

    @property
    def peer(self) -> Peer | None:
        """The connection to continue with, if there is one; a silent one for want of others."""
        now = asyncio.get_running_loop().time()
        free = (name for name in self._order if now >= self._busy_until_s.get(name, now))
        there = [(name, peer) for name in free if (peer := self.hosts.peer_at(name)) is not None]
        name, peer = min(there, key=lambda each: each[1].doubtful, default=(None, None))
        self._last = name
        return peer

    def put_off(self, seconds: float) -> float:
        """Skip the last host for `seconds`; return how long until another one may be tried."""
        if self._last is not None and seconds:
            self._busy_until_s[self._last] = asyncio.get_running_loop().time() + seconds
        return 0.0 if self.peer else seconds

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        """Return a live connection, waiting for it up to `timeout_s`; None if there is none."""
        clock, connectors = asyncio.get_running_loop().time, self.hosts.connectors.values()
        end_s = clock() + timeout_s
        for connector in connectors:
            connector.waiters += 1
        try:
            while (peer := self.peer) is None and clock() < end_s:
                later = (until_s for until_s in self._busy_until_s.values() if until_s > clock())
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min([end_s, *later])):
                        await self.hosts.back.wait()
            return peer
        finally:
            for connector in connectors:
                connector.waiters -= 1
