"""Admit devices and questions to a cloud, within limits per device (a connection) and in total.

Few questions of one device are read at a time, so that other devices do not wait. Connections in
the handshake have limits of number and time; a new one replaces the oldest, silent ones first.
"""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from dragonrt.errors import DragonError
from dragonrt.link.stream import Server, TcpStream, TlsError, listen
from dragonrt.link.tls import TlsStream
from dragonrt.node.connections.addresses import Address, Identity
from dragonrt.node.connections.peer import ConnectionLostError, Peer, Session, log
from dragonrt.settings import FINITE, Positive, setting
from dragonrt.timeouts import Timeouts
from dragonrt.traces.file import Recorder
from dragonrt.wire import messages as wire
from dragonrt.wire.connection import Connection
from dragonrt.wire.encoding import encode, encode_frame
from dragonrt.wire.reasons import BusyError

Work = Coroutine[Any, Any, None]
Opening = Callable[[Peer, wire.Open, asyncio.Semaphore], tuple[Session, Work]]
"""Makes the session that a device opens, and its work, which reads the question in its turn."""

MOST_HANDSHAKES = 64
MOST_OF_A_SOURCE = 16
FIRST_BYTE_S = 2.0  # how long a connection may be silent
NETWORK_BITS = 64  # prefix of the IPv6 addresses that one machine may have
READ_AT_ONCE = 2  # questions of one device that are read at the same time
LONGEST_RETRY_S = 30.0
USUAL_ANSWER_S = 2.0  # the assumed seconds of an answer before there was one
SMOOTHING = 0.1
LINES_A_SECOND = 4
REMEMBERED_HOSTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudLimits:
    """The settings that limit how many devices and answers a cloud admits."""

    most_devices: Positive = setting(256, "Most devices connected at once.")
    most_answers: Positive = setting(128, "Most running answers of all devices.")
    device_answers: Positive = setting(32, "Most running answers of one device.")
    device_rate: Annotated[float, Meta(ge=0.01, le=FINITE)] = setting(
        20.0, "Most answers per second that one device begins, with bursts of three seconds."
    )


USUAL_LIMITS: CloudLimits = CloudLimits()


class Bucket:
    """A token bucket for rate limits: `size` tokens at most and at first, refilled `per_second`."""

    def __init__(self, per_second: float, size: float, now: float) -> None:
        self._per_second, self._size = per_second, size
        self._tokens, self._filled_s = size, now

    def take(self, now: float) -> float:
        """Take a token and return 0.0, or return the seconds from `now` until there is one."""
        more = self._per_second * (now - self._filled_s)
        self._tokens, self._filled_s = min(self._size, self._tokens + more), now
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._per_second
        self._tokens -= 1.0
        return 0.0


class CloudAdmission:
    """Admits devices, and the sessions that they open, within the limits of a cloud.

    `opening` makes the session for an Open. `handshakes` limits unauthenticated connections.
    `admitted` counts admitted devices, `refused` the devices and sessions that exceeded a limit.
    """

    def __init__(self, opening: Opening, timeouts: Timeouts, limits: CloudLimits) -> None:
        self.timeouts = timeouts
        self.handshakes = Handshakes(timeouts.handshake_s)
        self.admitted = self.refused = 0
        self._opening = opening
        self._limits = limits
        # How fast each device may ask, and its turns to have questions read.
        self._devices: dict[Peer, tuple[Bucket, asyncio.Semaphore]] = {}
        self._answer_s = USUAL_ANSWER_S
        self._next_free_s = 0.0
        self._closing = self._hastened = False
        self._device_left = asyncio.Event()

    @contextmanager
    def admit(self, peer: Peer) -> Iterator[None]:
        """Count `peer` as a connected device within the context. Raises BusyError if full."""
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
        return len(self._devices)

    @property
    def sessions(self) -> int:
        return sum(len(peer.connection.sessions) for peer in tuple(self._devices))

    def check_room(self) -> None:
        self._check_open()
        if self.devices >= self._limits.most_devices:
            raise BusyError(f"the cloud has {self.devices} devices already", 10.0)

    def answering(self, peer: Peer, message: wire.Open) -> tuple[Session, Work]:
        """Return the session that `message` opens, and the coroutine to run. Raises BusyError."""
        pace, turns = self._devices[peer]
        try:
            self._check_places(pace, len(peer.connection.sessions))
        except BusyError:
            self.refused += 1
            raise
        session, work = self._opening(peer, message, turns)
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
        """Refuse new answers; wait until open ones end, `seconds` pass or `hasten` is called.

        A device without an open answer is disconnected, to find another cloud. No answer is ended.
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
        """Make `drain` return now, although answers are open; closing the server cancels them."""
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

    async def _timed(self, peer: Peer, work: Work) -> None:
        began_s = _now()
        try:
            await work
        finally:  # when the session is closed, too
            asyncio.get_running_loop().call_soon(self._dismiss_idle, peer)
        self._answer_s += SMOOTHING * (_now() - began_s - self._answer_s)


def _now() -> float:
    return asyncio.get_running_loop().time()


class BoundedLines:
    """Limits log lines to a few per second and host, and reports how many were dropped."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._hosts: dict[str, tuple[Bucket, int]] = {}  # the least recent first

    def __len__(self) -> int:
        return len(self._hosts)

    def say(self, host: str, line: str) -> None:
        """Log a line about `host`, or drop it above the rate. A later line counts the drops."""
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


class PlaceLostError(Exception):
    """A connection was dropped during its handshake: it was slow, silent, or others needed room."""


@dataclass(eq=False, slots=True)
class _Place:
    source: str
    heard: Callable[[], bool]
    dismiss: Callable[[], None]
    limit: asyncio.Timeout
    lost: str


class Handshakes:
    """Limits the connections in the handshake; `failed` counts those that did not complete it."""

    def __init__(
        self,
        handshake_s: float,
        most: int = MOST_HANDSHAKES,
        most_of_a_source: int = MOST_OF_A_SOURCE,
    ) -> None:
        self.failed = 0
        self._handshake_s = handshake_s
        self._most = most
        self._most_of_a_source = most_of_a_source
        self._places: dict[_Place, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._places)

    @asynccontextmanager
    async def place(
        self, host: str, heard: Callable[[], bool], dismiss: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Give a connection from `host` one of the limited handshake places within the context.

        `heard` returns whether a byte has arrived. The context raises PlaceLostError if it lasts
        too long, or a new connection needs the place; in that case `dismiss` is called first.
        """
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(self._handshake_s)
        late = f"it did not complete the handshake in {self._handshake_s:g} s"
        place = _Place(source_of(host), heard, dismiss, limit, late)
        self._make_room(place.source)
        try:
            async with limit:
                self._places[place] = None
                silent = loop.call_later(FIRST_BYTE_S, self._check_heard, place)
                try:
                    yield
                except BaseException:  # a cancelled handshake is counted, too
                    self.failed += 1
                    raise
                finally:
                    silent.cancel()
                    self._places.pop(place, None)
        except TimeoutError:
            raise PlaceLostError(place.lost) from None

    def _check_heard(self, place: _Place) -> None:
        if place in self._places and not place.heard():
            self._end(place, f"it sent nothing for {FIRST_BYTE_S:g} s")

    def _make_room(self, source: str) -> None:
        own = [place for place in self._places if place.source == source]
        full = len(own) >= self._most_of_a_source
        if full or len(self._places) >= self._most:
            waiting = own if full else list(self._places)
            leaving = next((place for place in waiting if not place.heard()), waiting[0])
            leaving.dismiss()
            self._end(leaving, "others need its place")

    def _end(self, place: _Place, why: str) -> None:
        del self._places[place]
        if not place.limit.expired():
            place.lost = why
            place.limit.reschedule(asyncio.get_running_loop().time())


def source_of(host: str) -> str:
    """Return the part of an address that identifies one machine: all of IPv4, the /64 of IPv6."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if address.version == 4 or address.ipv4_mapped is not None:
        return str(address)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))


async def serve(
    address: Address,
    identity: Identity,
    admission: CloudAdmission,
    recorder: Recorder,
    on_change: Callable[[str], None] = log.info,
) -> Server:
    """Listen as a cloud; return the Server, an async context manager that is closed at its end.

    `on_change` gets a line when a device joins, leaves or is refused: few lines per host. Raises
    DragonError for a host beyond loopback without a key or device certificates.
    """
    address.check_listening()
    lines = BoundedLines(on_change, asyncio.get_running_loop().time)

    async def handle(stream: TcpStream) -> None:
        name = stream.peer_name
        host = name.rpartition(":")[0]
        carrier = stream if address.tls is None else TlsStream(stream, address.tls)

        def heard() -> bool:
            return stream.bytes_received > 0

        def refuse(error: BusyError) -> None:
            # No key is agreed on yet: a device with a key accepts the reason in the clear.
            carrier.write(encode_frame(encode(wire.Goodbye(error.reason, error.text))))

        def dismiss() -> None:
            if not heard():
                refuse(BusyError("too many unauthenticated connections", 1.0))

        peer = Peer(
            address.around(carrier, identity.side),
            Connection(identity.side, identity.hello(), address.key),
            recorder.of(name),  # devices number their sessions alike
            admission.answering,
            admission.timeouts,
        )
        try:
            async with admission.handshakes.place(host, heard, dismiss):
                if isinstance(carrier, TlsStream):
                    await carrier.secure()
                admission.check_room()
                await peer.handshake()
        except BusyError as error:
            admission.refused += 1
            refuse(error)
            lines.say(host, f"refused {name}: {error}")
            return
        except (DragonError, PlaceLostError) as error:
            if heard() or isinstance(error, ConnectionLostError | TlsError | PlaceLostError):
                lines.say(host, f"refused {name}: {error}")
            return
        try:
            with admission.admit(peer):
                lines.say(host, f"{name} connected")
                await peer.run()
        except BusyError as error:
            lines.say(host, f"refused {name}: {error}")
            await peer.refuse(error)
        else:
            lines.say(host, f"{name} left: {peer.end or 'done'}")

    return await listen(address.host, address.port, handle)
