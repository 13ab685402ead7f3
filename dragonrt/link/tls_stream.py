"""TLS as a Stream over another one, for the side that listens.

A connection is counted and bounded before its first byte: asyncio's own TLS reports it after the
handshake, and makes as many handshakes as come.
"""

import ssl
from contextlib import suppress

from dragonrt.errors import LinkError
from dragonrt.link.stream import Layer, Stream, TlsError, reason_of

_MOST = 64 * 1024  # bytes that one `receive` returns


class TlsStream(Layer):
    """A Stream in TLS over `stream`; what is written before `secure` has ended waits for it."""

    def __init__(self, stream: Stream, context: ssl.SSLContext) -> None:
        super().__init__(stream)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._waiting: bytearray | None = bytearray()
        self._over = False

    async def secure(self) -> None:
        """Make the handshake, as the first `receive` does.

        Raises TlsError if the other side does not, LinkError if it leaves.
        """
        while self._waiting is not None:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not await self._more():
                    left = f"{self.peer_name} closed the connection before TLS was agreed on"
                    raise LinkError(left) from None
                continue
            except ssl.SSLError as error:
                self._flush()  # the alert says why
                raise TlsError(f"TLS with {self.peer_name} failed: {reason_of(error)}") from None
            waiting, self._waiting = self._waiting, None
            self.write(bytes(waiting))

    async def receive(self) -> bytes:
        await self.secure()
        while not self._over:
            try:
                data = self._tls.read(_MOST)
                if not data:
                    self.close()  # as TCP does where the other end has closed
                return data
            except ssl.SSLWantReadError:
                if not await self._more():
                    return b""
            except ssl.SSLError as error:
                broke = f"the connection to {self.peer_name} broke: {reason_of(error)}"
                raise LinkError(broke) from None
        return b""

    async def _more(self) -> bool:
        """Feed TLS the next bytes; False at the end."""
        self._flush()
        data = await self._stream.receive()
        self._incoming.write(data)
        return bool(data)

    def write(self, data: bytes) -> None:
        if self._waiting is not None:
            self._waiting += data
            return
        with suppress(ssl.SSLError):  # after the end it is dropped
            if data:
                self._tls.write(data)
        self._flush()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._stream.write(data)

    def close(self) -> None:
        self._over = True
        if self._waiting is None:
            with suppress(ssl.SSLError):
                self._tls.unwrap()  # says that this is the end, and waits for no answer
            self._flush()
        super().close()
