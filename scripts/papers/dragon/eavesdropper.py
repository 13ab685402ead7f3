"""What somebody on the wire sees of a connection, encrypted or not: sizes and times (SPEC 1.10)."""

import asyncio
from dataclasses import dataclass

from dragonrt.link.stream import Stream


@dataclass(frozen=True, slots=True)
class Seen:
    """So many bytes that left the device (`up`) or came to it, at a time in seconds."""

    time_s: float
    up: bool
    size: int


class Eavesdropper:
    """Implements Stream around one end of a stream; `seen` is what passed it."""

    def __init__(self, stream: Stream) -> None:
        self.seen: list[Seen] = []
        self._stream = stream
        self._now = asyncio.get_running_loop().time

    @property
    def peer_name(self) -> str:
        return self._stream.peer_name

    async def receive(self) -> bytes:
        data = await self._stream.receive()
        self.seen.append(Seen(self._now(), False, len(data)))
        return data

    def write(self, data: bytes) -> None:
        self.seen.append(Seen(self._now(), True, len(data)))
        self._stream.write(data)

    async def drain(self) -> None:
        await self._stream.drain()

    def close(self) -> None:
        self._stream.close()

    def abort(self) -> None:
        self._stream.abort()

    async def wait_closed(self) -> None:
        await self._stream.wait_closed()
