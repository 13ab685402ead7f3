"""Measure the link to a cloud without a question: round trips, bandwidth, loss, clock."""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from dragonrt.backends.model import LanguageModel
from dragonrt.control.scheduler import BandwidthEstimator
from dragonrt.link.stream import Stream
from dragonrt.node.connections.addresses import Address, Identity
from dragonrt.node.connections.peer import ConnectionLostError
from dragonrt.timeouts import USUAL
from dragonrt.wire.connection import Connection, Event, State
from dragonrt.wire.messages import Goodbye, Hello, Ping, Pong
from dragonrt.wire.reasons import Reason

ROUND_TRIPS = 21
PADDINGS = (2**12, 2**16, 2**20)
"""Bytes of the probes that time the rate, larger ones only if smaller are done soon."""
SOON_S = 0.5


@dataclass(frozen=True, slots=True)
class ProbedLink:
    """Measurements of the link to a cloud, and `peer`, the cloud's handshake message.

    `trips_s` are round trips, `ahead_s` is how far the cloud's clock is ahead, `up` the bandwidth
    to the cloud in bit/s, `segments` TCP's (sent, retransmitted). Unknown values are None.
    """

    peer: Hello
    connect_s: float
    trips_s: tuple[float, ...]
    up: float | None
    segments: tuple[int, int] | None
    ahead_s: float | None

    @property
    def median_s(self) -> float:
        return median(self.trips_s)

    @property
    def jitter_s(self) -> float:
        """The mean absolute difference between successive round trips, in seconds."""
        return fmean(abs(later - one) for one, later in pairwise(self.trips_s))


async def probe(address: Address, model: LanguageModel) -> ProbedLink:
    """Connect to a cloud as a device with `model`, measure the link, leave. Raises DragonError."""
    clock = asyncio.get_running_loop().time
    started_s, heard_ms = clock(), 0.0
    carrier = await address.reach()
    stream, connection = address.begin(carrier, Identity("device", model))
    try:
        async with asyncio.timeout(USUAL.handshake_s + USUAL.answer_s):
            while connection.state is not State.OPEN:
                await _receive(stream, connection)
                if connection.peer is not None:
                    # The date, which is to be compared with the peer's: no loop's clock has it.
                    heard_ms = heard_ms or time.time() * 1e3
            connect_s = clock() - started_s
            trips_s = [await _echo(stream, connection, 0) for _ in range(ROUND_TRIPS)]
            rate = BandwidthEstimator()
            for padding in PADDINGS:
                took_s = await _echo(stream, connection, padding)
                rate.add(padding, took_s - min(trips_s))
                if took_s > SOON_S:
                    break
            segments = carrier.segments
    except TimeoutError:
        raise ConnectionLostError(f"{stream.peer_name} takes too long to answer") from None
    finally:
        if connection.state is State.OPEN:
            stream.write(connection.send(Goodbye(Reason.FINISHED, "it only looked")))
        stream.close()
        await stream.wait_closed()
    peer = connection.peer
    assert peer is not None  # the connection was open
    ahead_s = (peer.clock_ms - heard_ms) / 1e3 if peer.clock_ms else None
    return ProbedLink(peer, connect_s, tuple(trips_s), rate.latest, segments, ahead_s)


async def _receive(stream: Stream, connection: Connection) -> list[Event]:
    stream.write(connection.data_to_send())
    data = await stream.receive()
    received = connection.receive_data(data) if data else connection.eof()
    stream.write(connection.data_to_send())
    if connection.closed:
        raise ConnectionLostError(f"{stream.peer_name} ended the connection")
    return [event for event, _ in received]


async def _echo(stream: Stream, connection: Connection, padding: int) -> float:
    """Return the seconds until a probe with `padding` bytes is echoed without them."""
    clock = asyncio.get_running_loop().time
    sent_s = clock()
    stream.write(connection.send(Ping(padding, int(sent_s * 1e6), bytes(padding))))
    while True:
        for event in await _receive(stream, connection):
            if isinstance(event, Pong) and event.sequence == padding:
                return clock() - sent_s
