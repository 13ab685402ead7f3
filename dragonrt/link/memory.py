"""A pair of streams inside one process, for simulation and tests: no delay, no socket."""

from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.link.stream import HIGH_WATER, BufferedStream, Stream


def memory_streams(names: tuple[str, str] = ("device", "cloud")) -> tuple[Stream, Stream]:
    """Return the two connected ends of a stream, named `names`."""
    first, second = _MemoryStream(names[1]), _MemoryStream(names[0])
    first._peer, second._peer = second, first
    return first, second


class _MemoryStream(BufferedStream):
    """One end of the pair; written bytes go straight into the other end's inbox."""

    _peer: "_MemoryStream"

    def __init__(self, peer_name: str) -> None:
        super().__init__(peer_name, self._emptied)

    @override
    def write(self, data: bytes) -> None:
        if not self._over:
            self._peer._inbox.feed(bytes(data))
            if self._peer._inbox.size > HIGH_WATER:
                self._writable.clear()

    @override
    def close(self) -> None:
        self._inbox.discard()
        if not self._over:
            self._end()
            self._peer._inbox.end()
            self._peer._end()

    @override
    def abort(self) -> None:
        self._inbox.discard()
        if not self._over:
            self._end()
            self._peer._inbox.discard(LinkError(f"the stream to {self._peer.peer_name} broke"))
            self._peer._end()

    @override
    async def wait_closed(self) -> None:
        """Return at once: ending a pair takes no time."""

    def _emptied(self) -> None:
        self._peer._writable.set()

    def _end(self) -> None:
        self._over = True
        self._writable.set()
