"""Admission of devices and questions to a cloud: limits per device (a connection) and for all.

A refusal includes a retry time. Few questions of one device are read at a time, so that other
devices do not wait for them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from dragonrt.node.answers.backend_session import Prefiller
from dragonrt.node.answers.driver import AnswerSession
from dragonrt.node.answers.server_session import server_session
from dragonrt.node.connections.handshakes import Handshakes
from dragonrt.node.connections.peer import Peer
from dragonrt.settings import setting
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import BusyError

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


class CloudAdmission:
    """See the module. `handshakes` holds the unauthenticated connections.

    Counts the devices that were `admitted`, and the devices and sessions that were `refused`.
    """

    def __init__(self, prefiller: Prefiller, limits: CloudLimits) -> None:
        self.prefiller = prefiller
        self.handshakes = Handshakes(prefiller.timeouts.handshake_s)
        self.admitted = self.refused = 0
        self._limits = limits
        # How fast each device may ask, and its turns to have questions read.
        self._devices: dict[Peer, tuple[Bucket, asyncio.Semaphore]] = {}
        self._answer_s = USUAL_ANSWER_S
        self._next_free_s = 0.0
        self._closing = self._hastened = False
        self._device_left = asyncio.Event()

    @contextmanager
    def admit(self, peer: Peer) -> Iterator[None]:
        """Admit a device until the context ends. Raises BusyError if there are too many."""
        self.check_room()
        rate = self._limits.device_rate
        pace = Bucket(rate, max(1.0, 3 * rate), _now())
        self._devices[peer] = pace, asyncio.Semaphore(READ_AT_ONCE)
        self.admitted += 1
        try:
            yield
        finally:
            del self._devices[peer]
            self._device_left.set()

    @property
    def devices(self) -> int:
        """Return how many devices are connected."""
        return len(self._devices)

    @property
    def sessions(self) -> int:
        """Return how many sessions the devices have open."""
        return sum(len(peer.connection.sessions) for peer in tuple(self._devices))

    def check_room(self) -> None:
        """Raise BusyError unless another device may connect."""
        self._check_open()
        if self.devices >= self._limits.most_devices:
            raise BusyError(f"the cloud has {self.devices} devices already", 10.0)

    def answering(
        self, peer: Peer, message: wire.Open
    ) -> tuple[AnswerSession, Coroutine[Any, Any, None]]:
        """Return the session that a device opens; see `peer.Answerer`. Raises BusyError."""
        pace, turns = self._devices[peer]
        try:
            self._check_places(pace, len(peer.connection.sessions))
        except BusyError:
            self.refused += 1
            raise
        session, work = server_session(self.prefiller, peer, message, turns)
        return session, self._timed(peer, work)

    def _check_open(self) -> None:
        if self._closing:
            raise BusyError("the cloud is shutting down; retry in 1 s", 1.0)

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
        for peer in list(self._devices):
            self._dismiss_idle(peer)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._devices and not self._hastened:
                    self._device_left.clear()
                    await self._device_left.wait()

    def hasten(self) -> None:
        """Stop waiting for the answers under way."""
        self._hastened = True
        self._device_left.set()

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
