"""The cloud's part of answers, and admission: limits per device (a connection) and for all.

A refusal includes a retry time. Few questions of one device are read at a time, so that other
devices do not wait for them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from dragonrt.modes.mode import Joined
from dragonrt.modes.question import Question
from dragonrt.modes.registry import mode_entry
from dragonrt.modes.replay import machine
from dragonrt.node.answer import AnswerSession, Driver, opening
from dragonrt.node.backend_session import Prefiller, PrefillResult
from dragonrt.node.citing import attribution, storable
from dragonrt.node.lobby import Lobby, source_of
from dragonrt.node.peer import Peer
from dragonrt.settings import setting
from dragonrt.traces.events import AnswerClosed
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import BusyError
from dragonrt.wire.values import unpack

READ_AT_ONCE = 2  # questions of one device that are read at the same time
LONGEST_RETRY_S = 30.0
USUAL_ANSWER_S = 2.0  # the assumed seconds of an answer before there was one
SMOOTHING = 0.1
LINES_A_SECOND = 4
REMEMBERED_HOSTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudLimits:
    """The limits of a cloud."""

    most_devices: int = setting(256, "Devices that may be connected.", low=1)
    most_answers: int = setting(128, "Answers under way, of all devices.", low=1)
    device_answers: int = setting(32, "Answers under way of one device.", low=1)
    device_rate: float = setting(
        20.0, "Answers per second that one device may begin; three times as many at once.", low=0.01
    )


USUAL_LIMITS: CloudLimits = CloudLimits()


class Bucket:
    """A token bucket of `size`, refilled at a rate per second; full at first."""

    def __init__(self, per_second: float, size: float, now: float) -> None:
        self._per_second, self._size = per_second, size
        self._tokens, self._filled_s = size, now

    def take(self, now: float) -> float:
        """Take one token and return 0.0, or return the seconds until one is available."""
        more = self._per_second * (now - self._filled_s)
        self._tokens, self._filled_s = min(self._size, self._tokens + more), now
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._per_second
        self._tokens -= 1.0
        return 0.0


class Gatekeeper:
    """See the module. `lobby` holds the unauthenticated connections.

    Counts the devices that were `admitted`, and the devices and sessions that were `sent_away`.
    """

    def __init__(self, prefiller: Prefiller, limits: CloudLimits) -> None:
        self.prefiller = prefiller
        self.lobby = Lobby(prefiller.timeouts.handshake_s)
        self.admitted = self.sent_away = 0
        self._limits = limits
        # How fast each device may ask, and its turns to have questions read.
        self._guests: dict[Peer, tuple[Bucket, asyncio.Semaphore]] = {}
        self._answer_s = USUAL_ANSWER_S
        self._next_free_s = 0.0
        self._closing = self._hastened = False
        self._guest_left = asyncio.Event()

    @contextmanager
    def inside(self, peer: Peer) -> Iterator[None]:
        """Admit a device until the context ends. Raises BusyError if there are too many."""
        self.check_room()
        rate = self._limits.device_rate
        pace = Bucket(rate, max(1.0, 3 * rate), _now())
        self._guests[peer] = pace, asyncio.Semaphore(READ_AT_ONCE)
        self.admitted += 1
        try:
            yield
        finally:
            del self._guests[peer]
            self._guest_left.set()

    @property
    def devices(self) -> int:
        """Return how many devices are connected."""
        return len(self._guests)

    @property
    def sessions(self) -> int:
        """Return how many sessions the devices have open."""
        return sum(len(peer.connection.sessions) for peer in tuple(self._guests))

    def check_room(self) -> None:
        """Raise BusyError unless another device may connect."""
        self._check_open()
        if self.devices >= self._limits.most_devices:
            raise BusyError(f"the cloud has {self.devices} devices already", 10.0)

    def answering(
        self, peer: Peer, message: wire.Open
    ) -> tuple[AnswerSession, Coroutine[Any, Any, None]]:
        """Return the session that a device opens; see `peer.Answerer`. Raises BusyError."""
        pace, turns = self._guests[peer]
        try:
            self._check_places(pace, len(peer.connection.sessions))
        except BusyError:
            self.sent_away += 1
            raise
        session, work = server_session(self.prefiller, peer, message, turns)
        return session, self._timed(peer, work)

    def _check_open(self) -> None:
        if self._closing:
            raise BusyError("the cloud ends: it is there again soon, or another one is", 1.0)

    def _check_places(self, pace: Bucket, sessions: int) -> None:
        """Raise BusyError unless a device with `sessions` open ones may open another now."""
        limits = self._limits
        self._check_open()
        if wait_s := pace.take(_now()):
            text = f"a device may begin {limits.device_rate:g} answers a second here"
            raise BusyError(text, wait_s)
        if sessions > limits.device_answers:
            text = f"{limits.device_answers} answers of this device are under way"
            raise BusyError(text, self._retry_s(limits.device_answers))
        if self.sessions > limits.most_answers:
            text = f"the cloud gives {limits.most_answers} answers already"
            raise BusyError(text, self._retry_s(limits.most_answers))

    async def drain(self, seconds: float) -> None:
        """Refuse new answers; wait up to `seconds`, or `hasten`, for those under way.

        Devices without an answer are disconnected, so that they find another cloud.
        """
        self._closing = True
        for peer in list(self._guests):
            self._dismiss_idle(peer)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._guests and not self._hastened:
                    self._guest_left.clear()
                    await self._guest_left.wait()

    def hasten(self) -> None:
        """Stop waiting for the answers under way."""
        self._hastened = True
        self._guest_left.set()

    def _dismiss_idle(self, peer: Peer) -> None:
        if self._closing and not peer.connection.sessions:
            peer.leave()

    def _retry_s(self, places: int) -> float:
        """Return the seconds until a place should be free; later for each refused device."""
        now = _now()
        self._next_free_s = max(now, self._next_free_s) + self._answer_s / places
        self._next_free_s = min(self._next_free_s, now + LONGEST_RETRY_S)
        return self._next_free_s - now

    async def _timed(self, peer: Peer, work: Coroutine[Any, Any, None]) -> None:
        began_s = _now()
        try:
            await work
        finally:  # when the session is closed, too
            asyncio.get_running_loop().call_soon(self._dismiss_idle, peer)
        self._answer_s += SMOOTHING * (_now() - began_s - self._answer_s)


def _now() -> float:
    return asyncio.get_running_loop().time()


class BoundedLines:
    """Logs lines about hosts with `say`, limited per second and host; counts those left out."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._hosts: dict[str, tuple[Bucket, int]] = {}  # the least recent first

    def __len__(self) -> int:
        return len(self._hosts)

    def say(self, host: str, line: str) -> None:
        """Log a line, unless there were too many about that host."""
        now = self._clock()
        fresh = Bucket(LINES_A_SECOND, 4 * LINES_A_SECOND, now), 0
        pace, left_out = self._hosts.pop(host, fresh)
        if pace.take(now):
            left_out += 1
        else:
            self._say(f"{line} ({left_out} lines of {host} left out)" if left_out else line)
            left_out = 0
        self._hosts[host] = pace, left_out
        if len(self._hosts) > REMEMBERED_HOSTS:
            del self._hosts[next(iter(self._hosts))]


def server_session(
    prefiller: Prefiller, peer: Peer, message: wire.Open, turns: asyncio.Semaphore
) -> tuple[AnswerSession, Coroutine[Any, Any, None]]:
    """Return the session that a device opens, and its work. Raises DragonError to refuse it."""
    entry = mode_entry(message.mode)
    question = unpack(Question, message.question)
    settings = unpack(entry.settings, message.settings)
    question.check_vocabulary(prefiller.vocabulary)
    traits = entry.traits(settings)
    resources = entry.prepare(prefiller, {}, settings)
    mode = machine(entry, "cloud", question, settings, resources, peer.recorder)
    driver = Driver(mode, peer.recorder, prefiller.timeouts)
    session = driver.sessions["device"] = AnswerSession(driver, "device", None)
    peer.pacing.shape(traits)
    session.attach(peer, message.session)
    driver.feed(Joined("device", message.session))
    # All devices may have the same key and certificate, and behind a balancer the same address.
    device = source_of(peer.name.rpartition(":")[0]), peer.name

    async def prepare() -> PrefillResult:
        async with turns:
            return await prefiller.prepare(
                question, verifies=traits.verifies, bare=traits.bare, device=device
            )

    async def work() -> None:
        """Prepare, report it, and take part until the device concludes or closes the session."""
        driver.record(opening(entry, question, settings, len(question.accepted)))
        working = wire.Working(message.session)
        try:
            read = await driver.prepare(prepare(), lambda: session.send(working))
            if read is None:
                return  # the session is closed: free the model for other answers
            load_us, prefill_us = int(read.load_s * 1e6), int(read.prefill_s * 1e6)
            session.send(
                wire.Opened(message.session, read.prompt_tokens, load_us, prefill_us, read.evidence)
            )
            driver.begin(read)
            await driver.wait_over()
            await session.wait_closed()
            if session.concluded is not None and prefiller.share_sources:
                text = read.decode(mode.decided), question.prompt
                found = attribution(read.passages, mode.moved, *text)
                differing = storable(await read.other_values(mode.decided))
                session.attribute(structs.replace(found, differing=differing))
        finally:
            session.attribute(None)
            await driver.settle()
            driver.record(AnswerClosed(driver.finish.value if driver.finish else "error"))

    return session, work()
