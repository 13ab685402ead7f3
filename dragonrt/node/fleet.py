"""Several clouds with the same model and documents, of which any may give an answer.

Each answer has an order of its own in which it goes to the hosts (rendezvous hashing, Thaler and
Ravishankar 1998): a host's answers spread over the others when it is lost, and no others move. The
first host that is reached sets what all must have; one that has something else is not used.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.node.connector import Connector, mistaken
from dragonrt.node.peer import Peer
from dragonrt.timeouts import USUAL, Timeouts

Holdings = tuple[str, str]
"""The fingerprints of a host's model, and of its documents and how they are found."""


class Fleet:
    """Implements Reachable: the hosts by their names, in the order in which the user named them."""

    def __init__(
        self,
        hosts: Mapping[str, Connector],
        on_notice: Callable[[str], None] = lambda text: None,
        timeouts: Timeouts = USUAL,
    ) -> None:
        self.hosts = hosts
        self.timeouts = timeouts
        self._on_notice = on_notice
        self._holdings: Holdings | None = None
        self._holders: set[str] = set()
        self._told: dict[str, Holdings] = {}
        self._connecting = False
        self._news = asyncio.Event()
        # Answers of different devices to one question go different ways.
        self._salt = os.urandom(16)
        self._any = Route(self, list(hosts))
        for name, connector in hosts.items():
            connector.on_connected = partial(self._connected, name)

    # What is Reachable.

    @property
    def peer(self) -> Peer | None:
        """A living connection, if there is one to a host that fits."""
        return self._any.peer

    @property
    def connected(self) -> bool:
        return self.peer is not None

    @property
    def met(self) -> bool:
        return any(connector.met for connector in self.hosts.values())

    @property
    def reconnections(self) -> int:
        return sum(connector.reconnections for connector in self.hosts.values())

    @property
    def absence(self) -> str:
        why = ((name, connector.absence) for name, connector in self.hosts.items())
        return next((f"host {name}: {text}" for name, text in why if text), "")

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, over all connections to all hosts."""
        return _sums(connector.traffic() for connector in self.hosts.values())

    def padding(self) -> tuple[int, int]:
        """Of these, the bytes that cells added, sent and received."""
        return _sums(connector.padding() for connector in self.hosts.values())

    async def settled(self) -> None:
        """Until the cadences have used up their budgets."""
        await asyncio.gather(*(connector.settled() for connector in self.hosts.values()))

    def for_answer(self, question: Question) -> "Route":
        """The way of an answer: the same for all of a conversation."""
        begins = question.history[0][0] if question.history else question.prompt

        def weight(host: str) -> bytes:
            return hashlib.sha256(self._salt + f"{host}\n{begins}".encode()).digest()

        return Route(self, sorted(self.hosts, key=weight, reverse=True))

    def hurry(self) -> None:
        """Somebody asks: lost connections are dialled now."""
        for connector in self.hosts.values():
            connector.hurry()

    async def reach(self) -> Peer | None:
        return await self._any.reach()

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        return await self._any.wait_connected(timeout_s)

    def put_off(self, seconds: float) -> float:
        return self._any.put_off(seconds)

    # The hosts.

    async def connect(self) -> None:
        """Connect to each that can be reached; raises an error where none can.

        It is one after which dialling again may help, if there is such a one.
        """
        names, self._connecting = list(self.hosts), True
        found = await asyncio.gather(
            *(connector.connect() for connector in self.hosts.values()), return_exceptions=True
        )
        self._connecting = False
        errors: dict[str, DragonError] = {}
        for name, error in zip(names, found, strict=True):
            if isinstance(error, DragonError):
                errors[name] = error
            elif error is not None:
                raise error
            else:
                self._connected(name)
        if not self.connected:
            name = next((each for each in errors if not mistaken(errors[each])), next(iter(errors)))
            raise DragonError(f"host {name}: {errors[name]}") from errors[name]
        for name, error in errors.items():
            self._on_notice(f"going on without the host {name} until it can be reached: {error}")

    async def run(self) -> None:
        """Work on all connections, and on those that follow them, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, connector in self.hosts.items():
                tasks.create_task(connector.run(), name=f"connector {name}")

    def fits(self, name: str) -> bool:
        """Whether that host has what all must have."""
        return name in self._holders

    async def news(self, timeout_s: float | None) -> None:
        """Until a host is there again, or time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()

    def _connected(self, name: str) -> None:
        peer = self.hosts[name].peer
        hello = peer.connection.peer if peer is not None else None
        if hello is None or self._connecting:
            return
        holdings = (hello.weights, hello.corpus)
        self._holders.discard(name)
        alone = not any(self.hosts[each].connected for each in self._holders)
        if self._holdings is None or (alone and self._told.get(name) is None):
            # The only ones that had it have changed: with the first of them, so do all.
            if self._holdings != holdings:
                self._holders.clear()
            self._holdings = holdings
        if holdings == self._holdings:
            self._holders.add(name)
            self._told.pop(name, None)
            news, self._news = self._news, asyncio.Event()
            news.set()
        elif self._told.get(name) != holdings:
            self._told[name] = holdings
            what = "model" if holdings[0] != self._holdings[0] else "documents or settings"
            self._on_notice(f"the host {name} is not used: its {what} are not those of the others")


class Route:
    """Implements Reachable for one answer: it stays with a host that is there and has a place."""

    def __init__(self, fleet: Fleet, order: Sequence[str]) -> None:
        self._fleet = fleet
        self._order = order
        self._full_until_s: dict[str, float] = {}
        self._last: str | None = None

    @property
    def peer(self) -> Peer | None:
        """The connection to go on with, if there is one."""
        self._last = next((name for name in self._order if self._takes(name)), None)
        return None if self._last is None else self._fleet.hosts[self._last].peer

    @property
    def connected(self) -> bool:
        return any(map(self._takes, self._order))

    @property
    def met(self) -> bool:
        return self._fleet.met

    @property
    def reconnections(self) -> int:
        return self._fleet.reconnections

    @property
    def absence(self) -> str:
        return self._fleet.absence

    def _takes(self, name: str) -> bool:
        now = asyncio.get_running_loop().time()
        full = now < self._full_until_s.get(name, now)
        return self._fleet.hosts[name].connected and self._fleet.fits(name) and not full

    def traffic(self) -> tuple[int, int]:
        return self._fleet.traffic()

    def padding(self) -> tuple[int, int]:
        return self._fleet.padding()

    def for_answer(self, question: Question) -> "Route":
        return self

    def hurry(self) -> None:
        self._fleet.hurry()

    def put_off(self, seconds: float) -> float:
        """The last host is busy for so long; returns how long until another one may be asked."""
        now = asyncio.get_running_loop().time()
        if self._last is not None and seconds:
            self._full_until_s[self._last] = now + seconds
        return 0.0 if self.connected else seconds

    async def reach(self) -> Peer | None:
        """A living connection, dialled now where all are lost; None if that takes too long."""
        self.hurry()
        return self.peer or await self.wait_connected(self._fleet.timeouts.reach_s)

    async def wait_connected(self, timeout_s: float) -> Peer | None:
        """A living connection, waiting for it up to `timeout_s`; None if none comes."""
        clock = asyncio.get_running_loop().time
        end_s = clock() + timeout_s
        while (peer := self.peer) is None and clock() < end_s:
            later = (until_s for until_s in self._full_until_s.values() if until_s > clock())
            await self._fleet.news(min([end_s, *later]) - clock())
        return peer


def _sums(each: Iterable[tuple[int, int]]) -> tuple[int, int]:
    sent, received = zip(*each, strict=True)
    return sum(sent), sum(received)
