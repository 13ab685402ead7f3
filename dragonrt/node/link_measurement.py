"""A look at the way to a cloud: one connection, some probes, no question."""

import asyncio
import time
from dataclasses import dataclass

from dragonrt.link.probe import BandwidthEstimator
from dragonrt.link.stream import Stream, connect
from dragonrt.node.endpoints import Address, Identity
from dragonrt.node.peer import ConnectionLostError
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.wire.connection import Connection, State
from dragonrt.wire.messages import Goodbye, Hello, Ping, Pong
from dragonrt.wire.reasons import Reason

ROUND_TRIPS = 11
PADDINGS = (2**12, 2**16, 2**20)
"""Bytes of the probes that time the bandwidth, larger ones only where smaller are done soon."""
SOON_S = 0.5


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """What was seen: times in seconds, `up_bits` in bit/s if it could be told.

    `clock_s` is how far the cloud's clock is ahead, to about half a round trip; None if it did not
    say. `protection` is a few words for people.
    """

    peer: Hello
    connect_s: float
    round_trips_s: tuple[float, ...]
    up_bits: float | None
    clock_s: float | None
    protection: str


async def measure_link(
    address: Address, identity: Identity, timeouts: Timeouts = USUAL
) -> LinkMeasurement:
    """Connect, shake hands, probe, and leave. Raises DragonError for a cloud that cannot be had."""
    clock = asyncio.get_running_loop().time
    started_s = clock()
    dialled = await connect(address.host, address.port, tls=address.tls)
    stream = address.around(dialled, identity.side)
    connection = Connection(identity.side, identity.hello(), address.key)
    try:
        async with asyncio.timeout(timeouts.handshake_s + timeouts.answer_s):
            heard_ms = 0.0
            while connection.state is not State.OPEN:
                await _receive(stream, connection)
                if connection.peer is not None:
                    # The date, which is to be compared with the peer's: no loop's clock has it.
                    heard_ms = heard_ms or time.time() * 1e3
            connect_s = clock() - started_s
            round_trips = [await _echo(stream, connection, 0) for _ in range(ROUND_TRIPS)]
            up_bits = await _bandwidth(stream, connection, min(round_trips))
    except TimeoutError:
        raise ConnectionLostError(f"{stream.peer_name} takes too long to answer") from None
    finally:
        if connection.state is State.OPEN:
            stream.write(connection.send(Goodbye(Reason.FINISHED, "it only looked")))
        stream.close()
        await stream.wait_closed()
    peer = connection.peer
    assert peer is not None  # the connection was open
    return LinkMeasurement(
        peer,
        connect_s,
        tuple(round_trips),
        up_bits,
        (peer.clock_ms - heard_ms) / 1e3 if peer.clock_ms else None,
        _protection(address),
    )


async def _receive(stream: Stream, connection: Connection) -> list[Pong]:
    stream.write(connection.data_to_send())
    data = await stream.receive()
    events = connection.receive_data(data) if data else connection.eof()
    stream.write(connection.data_to_send())
    if connection.closed:
        raise ConnectionLostError(f"{stream.peer_name} ended the connection")
    return [event for event in events if isinstance(event, Pong)]


async def _echo(stream: Stream, connection: Connection, padding: int) -> float:
    """Seconds until a probe with so many bytes of padding has come back as an empty one."""
    clock = asyncio.get_running_loop().time
    sent_s = clock()
    stream.write(connection.send(Ping(padding, int(sent_s * 1e6), bytes(padding))))
    while not any(pong.sequence == padding for pong in await _receive(stream, connection)):
        pass
    return clock() - sent_s


async def _bandwidth(stream: Stream, connection: Connection, round_trip_s: float) -> float | None:
    estimator = BandwidthEstimator()
    for padding in PADDINGS:
        took_s = await _echo(stream, connection, padding)
        estimator.add(padding, took_s - round_trip_s)
        if took_s > SOON_S:
            break
    return estimator.latest


def _protection(address: Address) -> str:
    ways = [
        *(["encrypted with the shared key"] if address.key is not None else []),
        *(["TLS"] if address.tls is not None else []),
    ]
    return " and ".join(ways) or "not encrypted"
