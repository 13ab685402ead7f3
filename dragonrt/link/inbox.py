"""Bytes that have arrived and wait to be received: the receiving half of every stream."""

import asyncio
from collections import deque
from collections.abc import Callable

from dragonrt.errors import LinkError


class Inbox:
    """A queue of bytes with an end, for one reader; `emptied` is called when it has taken all."""

    def __init__(self, emptied: Callable[[], None]) -> None:
        self.size = 0
        self._emptied = emptied
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._error: LinkError | None = None
        self._reader: asyncio.Future[None] | None = None

    def feed(self, data: bytes) -> None:
        """Add `data`; after the end it is dropped."""
        if data and not self._ended:
            self._chunks.append(data)
            self.size += len(data)
            self._wake()

    def end(self, error: LinkError | None = None) -> None:
        """Nothing more comes; with an error `receive` raises it once all bytes are taken."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()

    def discard(self, error: LinkError | None = None) -> None:
        """End, and drop what has not been taken: the reader gets b"" or the error at once."""
        self._chunks.clear()
        self.size = 0
        if not self._ended:
            self.end(error)

    async def receive(self) -> bytes:
        """All bytes that wait, or those that come next; b"" at the end."""
        if self._reader is not None:
            raise LinkError("only one task at a time may receive from a stream")
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.size = 0
        self._emptied()
        return data

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
