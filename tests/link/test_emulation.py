"""The emulated stream in virtual time: bytes arrive exactly when the model says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from dragonrt.errors import LinkError
from dragonrt.link.emulation import MAX_IN_FLIGHT, EmulatedStream, memory_streams
from dragonrt.link.models import LinkModel
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import HIGH_WATER, Stream
from dragonrt.testing.loop import run

T = TypeVar("T")


def now() -> float:
    return asyncio.get_running_loop().time()


def over_link(
    body: Callable[[EmulatedStream, Stream], Awaitable[T]], outgoing: LinkModel, incoming: LinkModel
) -> T:
    """Run `body` on both ends of an emulated stream, in virtual time, and close them."""

    async def main() -> T:
        near, far = memory_streams()
        stream = EmulatedStream(near, outgoing, incoming)
        try:
            return await body(stream, far)
        finally:
            stream.close()
            far.close()
            await stream.wait_closed()

    return run(main())


async def arrivals(stream: Stream, size: int) -> list[tuple[float, bytes]]:
    """What comes until `size` bytes are there, with its times."""
    received: list[tuple[float, bytes]] = []
    while sum(len(data) for _, data in received) < size:
        data = await stream.receive()
        assert data
        received.append((round(now(), 9), data))
    return received


def test_a_round_trip_takes_twice_the_latency() -> None:
    async def body(near: EmulatedStream, far: Stream) -> None:
        near.write(b"ping")
        assert await arrivals(far, 4) == [(0.15, b"ping")]
        far.write(b"pong")
        assert await arrivals(near, 4) == [(0.3, b"pong")]

    over_link(body, LinkModel(latency_s=0.15), LinkModel(latency_s=0.15))


def test_jitter_in_virtual_time_is_repeatable() -> None:
    async def body(near: EmulatedStream, far: Stream) -> list[float]:
        async def send() -> None:
            for number in range(50):
                near.write(b"%02d" % number)
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            received = tasks.create_task(arrivals(far, 100))
        assert b"".join(data for _, data in received.result()) == b"".join(
            b"%02d" % number for number in range(50)
        )
        return [time for time, _ in received.result()]

    def once(seed: int) -> list[float]:
        profile = LinkProfile(latency_s=0.1, jitter_s=0.05)
        return over_link(body, *profile.models("device", seed))

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_the_end_arrives_behind_the_last_byte_and_as_late() -> None:
    async def body(near: EmulatedStream, far: Stream) -> None:
        near.write(b"last")
        near.close()
        near.write(b"too late")
        assert await arrivals(far, 4) == [(0.2, b"last")]
        assert await far.receive() == b""
        assert now() == pytest.approx(0.2)

    over_link(body, LinkModel(latency_s=0.2), LinkModel())


def test_the_other_sides_end_is_late_too() -> None:
    async def body(near: EmulatedStream, far: Stream) -> None:
        far.write(b"last")
        far.close()
        assert await arrivals(near, 4) == [(0.3, b"last")]
        assert await near.receive() == b""
        assert now() == pytest.approx(0.3)
        with pytest.raises(LinkError):
            await near.drain()
        await near.wait_closed()

    over_link(body, LinkModel(), LinkModel(latency_s=0.3))


@pytest.mark.parametrize("lost", [True, False])
def test_an_ended_link_does_not_wait_for_what_is_under_way(lost: bool) -> None:
    async def body(near: EmulatedStream, far: Stream) -> None:
        near.write(bytes(100_000))
        if lost:
            far.abort()
            with pytest.raises(LinkError):
                await near.receive()
        else:
            far.close()
            assert await near.receive() == b""
        near.close()
        await near.wait_closed()
        assert now() == 0.0

    over_link(body, LinkModel(latency_s=0.1, bandwidth=100_000), LinkModel())


def test_abort_loses_what_is_under_way() -> None:
    async def body(near: EmulatedStream, far: Stream) -> None:
        near.write(b"lost")
        near.abort()
        with pytest.raises(LinkError):
            await far.receive()
        assert await near.receive() == b""

    over_link(body, LinkModel(latency_s=1.0), LinkModel(latency_s=1.0))


def test_drain_waits_until_little_enough_is_in_flight() -> None:
    async def body(near: EmulatedStream, _: Stream) -> None:
        near.write(bytes(MAX_IN_FLIGHT))
        await near.drain()
        assert now() == 0.0, "as much as may be in flight"
        near.write(bytes(1500))
        await near.drain()
        assert now() == pytest.approx(1.5), "the first packet has arrived"

    over_link(body, LinkModel(bandwidth=8000), LinkModel())


@pytest.mark.parametrize("latency_s", [0.1, 0.0])
def test_reading_pauses_while_too_much_is_unread(latency_s: float) -> None:
    async def body(near: EmulatedStream, far: Stream) -> None:
        written = 0

        async def fill() -> None:
            nonlocal written
            while True:
                far.write(bytes(HIGH_WATER))
                written += HIGH_WATER
                await far.drain()
                await asyncio.sleep(1.0)

        filling = asyncio.create_task(fill())
        await asyncio.sleep(100.0)
        assert written <= MAX_IN_FLIGHT + 4 * HIGH_WATER, "an unread stream must stop its sender"
        stopped_at = written
        await near.receive()
        await asyncio.sleep(100.0)
        assert written > stopped_at, "and go on when it is read"
        filling.cancel()
        await asyncio.wait([filling])

    over_link(body, LinkModel(latency_s=latency_s), LinkModel(latency_s=latency_s))
