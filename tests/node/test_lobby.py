"""Strangers at the door, in virtual time: who has to go, and when."""

import asyncio
from contextlib import suppress

import pytest

from dragonrt.node.lobby import FIRST_BYTE_S, Lobby, MadeWayError, source_of
from tests.node.virtual import virtual

HANDSHAKE_S = 10.0


class Stranger:
    """A connection that stays in the lobby; `end_s` is when it lost its place."""

    def __init__(self, lobby: Lobby, host: str, *, speaks: bool = False) -> None:
        self.speaks = speaks
        self.dismissed = False
        self.end_s: float | None = None
        self.task = asyncio.create_task(self._stay(lobby, host), name=host)

    async def _stay(self, lobby: Lobby, host: str) -> None:
        try:
            async with lobby.place(host, lambda: self.speaks, self._dismiss):
                await asyncio.Event().wait()
        except MadeWayError:
            self.end_s = asyncio.get_running_loop().time()

    def _dismiss(self) -> None:
        self.dismissed = True


async def come(lobby: Lobby, hosts: list[str], *, speaks: bool = False) -> list[Stranger]:
    """They come one after the other."""
    found = []
    for host in hosts:
        found.append(Stranger(lobby, host, speaks=speaks))
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
    lobby = Lobby(HANDSHAKE_S, most=8, most_of_a_source=4)
    strangers = []
    for number, host in enumerate(hosts):
        strangers += await come(lobby, [host], speaks=number in speaking)
    await asyncio.sleep(0.01)
    assert gone(strangers) == left_out
    assert [each.dismissed for each in strangers] == [n in left_out for n in range(len(hosts))]
    assert len(lobby) == len(hosts) - len(left_out)
    await leave(strangers)
    assert len(lobby) == 0


def test_ipv4_addresses_on_an_ipv6_socket_are_sources_of_their_own() -> None:
    mapped = ["::ffff:10.0.0.1", "::ffff:10.0.0.2"]
    assert len({source_of(host) for host in mapped}) == 2


@virtual
async def test_silence_and_handshakes_are_bounded() -> None:
    lobby = Lobby(HANDSHAKE_S)
    silent, slow = (await come(lobby, ["a"])) + (await come(lobby, ["a"], speaks=True))
    await asyncio.gather(silent.task, slow.task)
    assert silent.end_s == pytest.approx(FIRST_BYTE_S)
    assert slow.end_s == pytest.approx(HANDSHAKE_S)
    assert not silent.dismissed
    assert not slow.dismissed
    assert lobby.turned_away == 2


@virtual
async def test_one_who_is_closing_already_has_no_place_to_lose() -> None:
    lobby = Lobby(HANDSHAKE_S, most_of_a_source=1)
    leaving = asyncio.Event()

    async def slow_to_close() -> None:
        with suppress(MadeWayError):
            async with lobby.place("a", lambda: True, lambda: None):
                try:
                    await asyncio.Event().wait()
                finally:
                    leaving.set()
                    await asyncio.sleep(1.0)

    task = asyncio.create_task(slow_to_close())
    await leaving.wait()
    others = await come(lobby, ["a", "a"])
    await asyncio.sleep(0.01)
    assert gone(others) == [0]
    await task
    await leave(others)


@virtual
async def test_who_said_who_it_is_leaves_its_place_to_others() -> None:
    lobby = Lobby(HANDSHAKE_S)
    async with lobby.place("a", lambda: True, lambda: None):
        assert len(lobby) == 1
    assert len(lobby) == 0
    assert lobby.turned_away == 0
