"""Streams of bytes between the two sides: the interface, and TCP with or without TLS.

Buffers are bounded: `write` never waits, `drain` does, and an idle reader stops the sender.
"""

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self, cast

from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.timeouts import USUAL

HIGH_WATER = 256 * 1024  # bytes: unsent ones for which drain waits, and unread ones kept
TCP_INFO = struct.Struct("100xI52xI")
"""Linux's `struct tcp_info`: tcpi_total_retrans, and tcpi_data_segs_out since Linux 4.6."""


class TlsError(LinkError):
    """A connection cannot be secured: TLS failed, or a remote address has neither TLS nor a key."""


class Stream:
    """An ordered, reliable stream of bytes to one peer, used by one reader and one writer.

    Subclasses define `receive` and `write`, and the other methods if they have buffers or tasks.
    """

    peer_name: str  # the other end's name or address, for people

    async def receive(self) -> bytes:
        """Return the next bytes, b"" once a side has closed. Raises LinkError if the link broke."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Send `data` without waiting. After the end of the stream, `data` is dropped."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Wait until few written bytes are unsent. Raises LinkError if the stream has ended."""

    def close(self) -> None:
        """Send what was written, then end the stream. Returns at once; see `wait_closed`."""

    def abort(self) -> None:
        """End the stream at once; unsent bytes are lost and the peer sees a broken link."""

    async def wait_closed(self) -> None:
        """Wait until the stream and its tasks have ended, after `close` or `abort`."""


class Layer(Stream):
    """Base of a Stream over another one, such as encryption: a subclass transforms the bytes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.peer_name = stream.peer_name

    @override
    async def drain(self) -> None:
        await self._stream.drain()

    @override
    def close(self) -> None:
        self._stream.close()

    @override
    def abort(self) -> None:
        self._stream.abort()

    @override
    async def wait_closed(self) -> None:
        await self._stream.wait_closed()


class BufferedStream(Stream):
    """Base of streams that keep received bytes until `receive` is called; it defines `drain`.

    A subclass passes `emptied`, called when all received bytes are read so that more may come.
    """

    def __init__(self, peer_name: str, emptied: Callable[[], None]) -> None:
        self.peer_name = peer_name
        self._unread = 0
        self._on_emptied = emptied
        self._chunks: deque[bytes] = deque()
        self._complete = False
        self._read_error: LinkError | None = None
        self._more = asyncio.Event()  # set while there is something to receive, or the end
        self._busy = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._over = False

    def _feed(self, data: bytes) -> None:
        """Add received bytes; after the end they are dropped."""
        if data and not self._complete:
            self._chunks.append(data)
            self._unread += len(data)
            self._more.set()

    def _end_reading(self, error: LinkError | None = None, *, discard: bool = False) -> None:
        """End the received bytes, after which `receive` raises the error; `discard` drops them."""
        if discard:
            self._chunks.clear()
            self._unread = 0
        if not self._complete:
            self._complete, self._read_error = True, error
            self._more.set()

    @override
    async def receive(self) -> bytes:
        if self._busy:
            raise LinkError("only one task at a time may receive from a stream")
        self._busy = True
        try:
            await self._more.wait()
        finally:
            self._busy = False
        if not self._chunks:
            if self._read_error is not None:
                raise self._read_error
            return b""
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._unread = 0
        if not self._complete:
            self._more.clear()
        self._on_emptied()
        return data

    @override
    async def drain(self) -> None:
        await self._writable.wait()
        if self._over:
            raise LinkError(f"the connection to {self.peer_name} is closed")


class TcpStream(BufferedStream, asyncio.Protocol):
    """A Stream over one TCP connection, with or without TLS, made by `connect` or `listen`."""

    def __init__(self, connected: Callable[["TcpStream"], None] = lambda stream: None) -> None:
        super().__init__("an unknown peer", self._resume_reading)  # its address, once connected
        self._connected = connected
        self._reading = True
        self._closed = asyncio.Event()
        self._transport: asyncio.Transport
        self.bytes_received = 0

    @property
    def segments(self) -> tuple[int, int] | None:
        """TCP segments with data: (sent, retransmitted). None if the system does not count them."""
        option = getattr(socket, "TCP_INFO", None)
        if option is None:
            return None
        carrier = self._transport.get_extra_info("socket")
        try:
            found = carrier.getsockopt(socket.IPPROTO_TCP, option, TCP_INFO.size)
            again, sent = TCP_INFO.unpack(found)
        except (OSError, struct.error):
            return None
        return (sent, again) if sent else None

    @override
    def write(self, data: bytes) -> None:
        if not self._over:
            self._transport.write(data)

    @override
    def close(self) -> None:
        self._over = True
        self._end_reading(discard=True)
        self._writable.set()
        if not self._transport.is_closing():  # closed again, asyncio's TLS could not be aborted
            self._transport.close()

    @override
    def abort(self) -> None:
        self.close()
        self._transport.abort()

    @override
    async def wait_closed(self) -> None:
        """Wait until the connection has ended; abort it if that takes over `Timeouts.close_s`."""
        try:
            async with asyncio.timeout(USUAL.close_s):
                await self._closed.wait()
        except TimeoutError:
            self.abort()
            await self._closed.wait()

    # What asyncio calls.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        address = transport.get_extra_info("peername")  # None if the peer has left already
        if address is not None:
            self.peer_name = _address_name(*address[:2])
        self._connected(self)

    @override
    def data_received(self, data: bytes) -> None:
        self.bytes_received += len(data)
        self._feed(data)
        if self._reading and self._unread > HIGH_WATER:
            self._reading = False
            self._transport.pause_reading()

    @override
    def eof_received(self) -> None:
        # Returning None closes our half too, after what was written has been sent.
        self._over = True
        self._end_reading()
        self._writable.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._end_reading(_broken(self.peer_name, exc) if exc else None)
        self._writable.set()
        self._closed.set()

    @override
    def pause_writing(self) -> None:
        self._writable.clear()

    @override
    def resume_writing(self) -> None:
        self._writable.set()

    def _resume_reading(self) -> None:
        if not self._reading and not self._over:
            self._reading = True
            self._transport.resume_reading()


async def connect(
    host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_s: float = USUAL.connect_s
) -> TcpStream:
    """Connect to `host`:`port`; return the stream. Raises LinkError, after `timeout_s` at most."""
    loop = asyncio.get_running_loop()
    where = f"cannot reach {_address_name(host, port)}"
    try:
        async with asyncio.timeout(timeout_s):
            _, stream = await loop.create_connection(TcpStream, host, port, ssl=tls)
    except TimeoutError:
        raise LinkError(
            f"{where}: no answer within {timeout_s:g} s; check the address and the firewall"
        ) from None
    except ssl.SSLCertVerificationError as error:
        raise TlsError(
            f"{where}: its certificate is not trusted ({error.verify_message}); "
            "give the authority that signed it with --tls-ca"
        ) from None
    except (ssl.SSLError, ConnectionResetError) as error:
        ended = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)
        kind = LinkError if isinstance(error, ended) else TlsError
        raise kind(f"{where}: {reason_of(error)}; is TLS on at both ends or at neither?") from None
    except socket.gaierror:
        raise LinkError(f"{where}: no such host; check its name") from None
    except OSError as error:
        raise LinkError(
            f"{where}: {reason_of(error)}; is `dragonrt cloud` running there?"
        ) from None
    return stream


class Server:
    """A listening socket and a task per connection; its async context closes the server at exit."""

    def __init__(self, handler: Callable[[TcpStream], Awaitable[None]]) -> None:
        self._handler = handler
        self._connections: dict[asyncio.Task[None], TcpStream] = {}
        self._server: asyncio.Server  # set by `listen`

    @property
    def port(self) -> int:
        """The port on which the server listens, which the system has chosen if 0 was given."""
        return int(self._server.sockets[0].getsockname()[1])

    def stop_listening(self) -> None:
        """Stop accepting connections; handlers of open ones continue."""
        self._server.close()

    async def close(self) -> None:
        """Stop accepting connections, cancel the handlers, and wait until they have ended."""
        self.stop_listening()
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        for stream in connections.values():  # a handler that never ran has not closed its stream
            stream.close()
            await stream.wait_closed()
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _connected(self, stream: TcpStream) -> None:
        task = asyncio.create_task(self._handle(stream), name=f"from {stream.peer_name}")
        self._connections[task] = stream
        task.add_done_callback(self._connections.pop)

    async def _handle(self, stream: TcpStream) -> None:
        try:
            await self._handler(stream)
        except Exception as error:
            # One broken connection must not end the server, but is reported.
            context = {"message": f"serving {stream.peer_name} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            stream.close()
            await stream.wait_closed()


async def listen(host: str, port: int, handler: Callable[[TcpStream], Awaitable[None]]) -> Server:
    """Return a Server on `host`:`port` (0: any free port) that runs `handler` for each connection.

    The stream is closed when its handler ends. Raises LinkError if the address cannot be used.
    """
    server, loop = Server(handler), asyncio.get_running_loop()
    where = f"cannot listen on {_address_name(host, port)}"
    try:
        server._server = await loop.create_server(lambda: TcpStream(server._connected), host, port)
    except socket.gaierror:
        raise LinkError(f"{where}: no such host; check its name") from None
    except OSError as error:
        raise LinkError(f"{where}: {reason_of(error)}; choose another address or port") from None
    return server


def _broken(name: str, error: Exception) -> LinkError:
    why = reason_of(error)
    if isinstance(error, ssl.SSLError) and ("certificate" in why or "unknown ca" in why):
        return TlsError(
            f"{name} asks for a certificate that its authority signed ({why}): give --tls-cert and "
            "--tls-key"
        )
    return LinkError(f"the connection to {name} broke: {why}")


def _address_name(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reason_of(error: Exception) -> str:
    """Describe a socket or TLS error in words for users, without its error number or addresses."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failed").replace("_", " ").lower()
    if isinstance(error, OSError):
        for code in (errno.ECONNREFUSED, errno.EADDRINUSE):
            # asyncio joins the errors of several addresses into one without a code of its own.
            if error.errno == code or f"[Errno {code}]" in str(error):
                return os.strerror(code).lower()
        if error.errno is not None:
            return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: localhost, or an address such as 127.0.0.1."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
