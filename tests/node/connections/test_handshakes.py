"""Strangers at the door, in virtual time: who has to go, and when."""

import asyncio
from contextlib import suppress

import pytest

from dragonrt.node.connections.admission import FIRST_BYTE_S, Handshakes, PlaceLostError, source_of
from tests.node.virtual import virtual

HANDSHAKE_S = 10.0


class Stranger:
    """A connection that stays in the handshakes; `end_s` is when it lost its place."""

    def __init__(self, handshakes: Handshakes, host: str, *, speaks: bool = False) -> None:
        self.speaks = speaks
        self.dismissed = False
        self.end_s: float | None = None
        self.task = asyncio.create_task(self._stay(handshakes, host), name=host)

    async def _stay(self, handshakes: Handshakes, host: str) -> None:
        try:
            async with handshakes.place(host, lambda: self.speaks, self._dismiss):
                await asyncio.Event().wait()
        except PlaceLostError:
            self.end_s = asyncio.get_running_loop().time()

    def _dismiss(self) -> None:
        self.dismissed = True


async def come(handshakes: Handshakes, hosts: list[str], *, speaks: bool = False) -> list[Stranger]:
    """They come one after the other."""
    found = []
    for host in hosts:
        found.append(Stranger(handshakes, host, speaks=speaks))
        await asyncio.sleep(0)
    return found


async def leave(strangers: list[Stranger]) -> None:
    for each in strangers:
        each.task.cancel()
    await asyncio.gather(*(each.task for each in strangers), return_exceptions=True)


def gone(strangers: list[Stranger]) -> list[int]:
    return [number for number, each in enumerate(strangers) if each.end_s is not None]


@pytest.mark.parametrize(
    ("hosts", "speaking", "left_out"),
    [
        (
            ["10.0.0.1"] * 4 + ["10.0.0.2", "10.0.0.1"],
            {0},
            [1],
        ),  # the oldest silent one of a source
        (["10.0.0.1"] * 6, set(range(6)), [0, 1]),  # all have spoken: the oldest
        ([f"10.0.0.{number}" for number in range(100)], set(), list(range(92))),
        ([f"2001:db8::{number}" for number in range(1, 6)], set(), [0]),  # one network, one source
        ([f"2001:db8:0:{number}::1" for number in range(1, 6)], set(), []),
    ],
)
@virtual
async def test_strangers_make_way_for_newcomers(
    hosts: list[str], speaking: set[int], left_out: list[int]
) -> None:
    handshakes = Handshakes(HANDSHAKE_S, most=8, most_of_a_source=4)
    strangers = []
    for number, host in enumerate(hosts):
        strangers += await come(handshakes, [host], speaks=number in speaking)
    await asyncio.sleep(0.01)
    assert gone(strangers) == left_out
    assert [each.dismissed for each in strangers] == [n in left_out for n in range(len(hosts))]
    assert len(handshakes) == len(hosts) - len(left_out)
    await leave(strangers)
    assert len(handshakes) == 0


def test_ipv4_addresses_on_an_ipv6_socket_are_sources_of_their_own() -> None:
    mapped = ["::ffff:10.0.0.1", "::ffff:10.0.0.2"]
    assert len({source_of(host) for host in mapped}) == 2


@virtual
async def test_silence_and_handshakes_are_bounded() -> None:
    handshakes = Handshakes(HANDSHAKE_S)
    silent, slow = (await come(handshakes, ["a"])) + (await come(handshakes, ["a"], speaks=True))
    await asyncio.gather(silent.task, slow.task)
    assert silent.end_s == pytest.approx(FIRST_BYTE_S)
    assert slow.end_s == pytest.approx(HANDSHAKE_S)
    assert not silent.dismissed
    assert not slow.dismissed
    assert handshakes.failed == 2


@virtual
async def test_one_who_is_closing_already_has_no_place_to_lose() -> None:
    handshakes = Handshakes(HANDSHAKE_S, most_of_a_source=1)
    leaving = asyncio.Event()

    async def slow_to_close() -> None:
        with suppress(PlaceLostError):
            async with handshakes.place("a", lambda: True, lambda: None):
                try:
                    await asyncio.Event().wait()
                finally:
                    leaving.set()
                    await asyncio.sleep(1.0)

    task = asyncio.create_task(slow_to_close())
    await leaving.wait()
    others = await come(handshakes, ["a", "a"])
    await asyncio.sleep(0.01)
    assert gone(others) == [0]
    await task
    await leave(others)


@virtual
async def test_who_said_who_it_is_leaves_its_place_to_others() -> None:
    handshakes = Handshakes(HANDSHAKE_S)
    async with handshakes.place("a", lambda: True, lambda: None):
        assert len(handshakes) == 1
    assert len(handshakes) == 0
    assert handshakes.failed == 0
