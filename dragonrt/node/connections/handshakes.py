"""Unauthenticated connections: their number and their time are limited.

Places are limited per source address and in total. A new connection is always accepted: if there is
no place, the oldest silent connection loses its own, or else the oldest one.
"""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

MOST_HANDSHAKES = 64
MOST_OF_A_SOURCE = 16
FIRST_BYTE_S = 2.0  # how long a connection may be silent
NETWORK_BITS = 64  # prefix of the IPv6 addresses that one machine may have


class PlaceLostError(Exception):
    """The connection lost its place, for the reason in the text."""


@dataclass(eq=False, slots=True)
class _Place:
    source: str
    heard: Callable[[], bool]
    dismiss: Callable[[], None]
    limit: asyncio.Timeout
    lost: str


class Handshakes:
    """The places; `failed` counts the connections that did not authenticate."""

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
        """Hold a place until the context ends; `heard` returns whether a byte has arrived.

        If another connection needs the place, calls `dismiss` and cancels the context. Raises
        PlaceLostError then, or after too long a silence or handshake.
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
    """Return the part of an address that identifies one machine: IPv4 whole, IPv6 its /64."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if address.version == 4 or address.ipv4_mapped is not None:
        return str(address)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))
