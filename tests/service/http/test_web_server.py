"""What a stranger may take of the service: time and places, over real sockets."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from dragonrt.link.tls import client_context, server_context
from dragonrt.service.http import web_server
from dragonrt.service.http.guard import ApiKeys
from dragonrt.service.http.web_server import HttpBounds, Places, listen_on, serving
from tests.certificates import make_certificates

from .served import BOUND_S, chat_body, served, until

SOON_S = 0.05
NEVER_S = 600.0
"""Longer than any test: what ends a connection is another bound."""
PATIENT = HttpBounds(head_s=NEVER_S, idle_s=600, taken_in_s=NEVER_S)
KEYS = ApiKeys(("k" * 32,))
HEADERS = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
SIZED, CHUNKED = b"Content-Length: 100000\r\n", b"Transfer-Encoding: chunked\r\n"
BEGUN = POST + CHUNKED + b"\r\n1\r\n{\r\n"


@dataclass(frozen=True, slots=True)
class Client:
    """One connection, by hand."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answered(self) -> bytes:
        """All that the service says until it ends the connection."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while piece := await self.reader.read(65536):
                found += piece
        return found

    async def asks(self) -> bytes:
        """The status line of a request on this connection."""
        self.writer.write(HEADERS + b"\r\n")
        line = await self.reader.readline()
        await self.reader.readuntil(b"\r\n\r\n")
        return line

    async def drips(self, more: Callable[[], bytes]) -> bytes:
        """What the service says to one who sends a little for as long as it listens."""
        answered = asyncio.create_task(self.answered())
        while not answered.done():
            with contextlib.suppress(ConnectionError):
                self.writer.write(more())
                await self.writer.drain()
            await asyncio.wait((answered,), timeout=SOON_S / 10)
        return await answered


@asynccontextmanager
async def client(
    port: int, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1"
) -> AsyncIterator[Client]:
    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, local_addr=(source, 0)
        )
        try:
            yield Client(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


@asynccontextmanager
async def visited(keys: ApiKeys | None = None, **seconds: float) -> AsyncIterator[Client]:
    """A client of a service of which these bounds alone count."""
    bounds = bounded(**seconds)
    async with served({}, keys=keys, bounds=bounds) as service, client(service.port) as visitor:
        yield visitor
        if "head_s" in seconds:
            assert service.places.open == 0


@asynccontextmanager
async def serves(app: ASGIApp, bounds: HttpBounds) -> AsyncIterator[tuple[Client, Places]]:
    """A client of an application behind these bounds."""
    with listen_on("127.0.0.1", 0) as listening:
        places, port = Places(bounds), listening.getsockname()[1]
        async with serving(app, listening, None, places), client(port) as visitor:
            yield visitor, places


def certified(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a service with a certificate, and of a client who trusts it."""
    make_certificates(folder)
    context = server_context(folder / "cloud.pem", folder / "cloud.key")
    return context, client_context(folder / "authority.pem")


def bounded(**seconds: float) -> HttpBounds:
    """Bounds of which these alone count."""
    return replace(PATIENT, **seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begun", "drip"), [(b"", b""), (b"\r\n", b"x"), (b"GET /hea", b"x"), (HEADERS, b"")]
)
async def test_headers_that_do_not_come_end_the_connection(begun: bytes, drip: bytes) -> None:
    async with visited(KEYS, head_s=SOON_S) as slow:
        slow.writer.write(begun)
        answered = await slow.drips(lambda: drip)
        # One who drips into the first line may be refused for what that line says.
        assert answered.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400")) or drip == b"x"


async def test_headers_of_a_later_request_have_no_more_time() -> None:
    async with visited(KEYS, head_s=SOON_S) as slow:
        assert b"200" in await slow.asks()
        await slow.reader.read(65536)
        slow.writer.write(HEADERS)
        assert (await slow.answered()).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("length", [SIZED, CHUNKED])
async def test_a_dripping_body_ends_the_connection(
    length: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "BODY_S", SOON_S)
    piece = b"1\r\nx\r\n" if length == CHUNKED else b"x"
    async with visited() as slow:
        slow.writer.write(POST + length + b"\r\n")
        assert (await slow.drips(lambda: piece)).startswith(b"HTTP/1.1 408")


async def test_a_large_body_has_time_for_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"model": "bytes", "messages": []}'
    monkeypatch.setattr(web_server, "BODY_S", SOON_S)
    monkeypatch.setattr(web_server, "BYTES_PER_S", 1)  # so each byte gives a second
    async with visited() as slow:
        slow.writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
        await asyncio.sleep(2 * SOON_S)
        slow.writer.write(body[-1:])
        assert b"400" in await slow.reader.readline()


async def test_a_body_that_nobody_reads_is_not_waited_for() -> None:
    async with visited(KEYS, head_s=SOON_S) as stranger:
        stranger.writer.write(POST + SIZED + b"\r\n")
        assert (await stranger.drips(lambda: b"x")).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(("size", "end"), [(33_000, b""), (2**20, b"\r\n\r\n")])
async def test_long_headers_are_refused(size: int, end: bytes) -> None:
    async with visited() as stranger:
        assert b"200" in await stranger.asks()
        await stranger.reader.read(65536)
        stranger.writer.write(HEADERS + b"X: " + b"x" * size + end)
        assert (await stranger.answered()).startswith((b"HTTP/1.1 400", b""))


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (BEGUN + b"0\r\nX: " + b"x" * 66_000, b"400"),  # trailers
        (BEGUN + b"1;x=" + b"x" * 66_000, b"400"),
        (POST + b"Content-Length: 3000000\r\n\r\n", b"413"),
        (HEADERS + b"Host: localhost\r\nConnection: close\r\n\r\n", b"400"),
    ],
    ids=["trailers", "extension", "length", "hosts"],
)
async def test_what_is_too_much_is_refused_at_once(sent: bytes, status: bytes) -> None:
    async with visited() as stranger:
        stranger.writer.write(sent)
        assert (await stranger.answered()).startswith(b"HTTP/1.1 " + status)


async def test_trailers_are_no_headers() -> None:
    found: list[list[bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        found.append([name for name, _ in scope["headers"]])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with serves(app, PATIENT) as (visitor, _):
        for ending in (b"0\r\nHost: elsewhere\r\n\r\n", b"0\r\n\r\n"):
            visitor.writer.write(BEGUN + ending)
            assert b"204" in await visitor.reader.readline()
            await visitor.reader.readuntil(b"\r\n\r\n")
    names = [b"host", b"content-type", b"transfer-encoding"]
    assert found == [names, names]


@pytest.mark.parametrize("stream", [False, True])
async def test_garbage_behind_a_request_ends_it(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with served({"a?": "yes\n"}, halt_at=2, bounds=PATIENT) as service:
        closed = asyncio.Event()
        service.side.on_close = closed.set
        async with client(service.port) as stranger:
            body = json.dumps(chat_body("a?", stream=stream)).encode()
            stranger.writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            if stream:
                assert b"200" in await stranger.reader.readline()
            else:
                await until(lambda: service.admission.running > 0)
            stranger.writer.write(b"\x00" * 1000)
            await stranger.answered()
            await closed.wait()
    assert not caplog.records


async def test_a_broken_chunk_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    async with serves(app, PATIENT) as (visitor, _):
        visitor.writer.write(BEGUN)
        await begun.wait()
        visitor.writer.write(b"no chunk\r\n")
        await visitor.answered()
    assert not caplog.records


async def test_a_try_to_upgrade_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with visited() as stranger:
        stranger.writer.write(HEADERS + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert b"200" in await stranger.reader.readline()
    assert not caplog.records


async def test_an_idle_connection_is_ended() -> None:
    async with visited(idle_s=SOON_S) as idle:
        assert b"200" in await idle.asks()
        await idle.answered()


async def test_one_address_takes_its_places_and_no_other_ones() -> None:
    await take_places(None, None)


async def take_places(tls: ssl.SSLContext | None, trusted: ssl.SSLContext | None) -> None:
    visits = partial(client, tls=trusted)
    bounds = bounded(of_address=2, connections=3)
    async with served({}, bounds=bounds, tls=tls, trusted=trusted or True) as service:
        port = service.port
        async with visits(port) as first, visits(port) as second:
            assert b"200" in await first.asks()
            assert b"200" in await second.asks()
            async with visits(port) as third:
                assert (await third.answered()).startswith(b"HTTP/1.1 503")
            async with visits(port, source="127.0.0.2") as another:
                assert b"200" in await another.asks()
                async with visits(port, source="127.0.0.3") as last:
                    assert (await last.answered()).startswith(b"HTTP/1.1 503")
        await until(lambda: not service.places.open)
        async with visits(port) as again:
            assert b"200" in await again.asks()
        assert service.places.refused == 2


async def test_places_are_taken_over_tls(tmp_path: Path) -> None:
    await take_places(*certified(tmp_path))


async def test_a_handshake_that_does_not_come_ends_the_connection(tmp_path: Path) -> None:
    tls, _ = certified(tmp_path)
    async with served({}, tls=tls, bounds=bounded(head_s=SOON_S)) as service:
        async with client(service.port) as silent:
            assert await silent.answered() == b""
        async with client(service.port) as plain:
            plain.writer.write(HEADERS + b"\r\n")
            await plain.answered()
        assert service.places.open == 0


async def test_who_takes_nothing_in_is_dropped() -> None:
    over = asyncio.Event()

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(64):
                await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
        finally:
            over.set()

    async with serves(large, bounded(taken_in_s=SOON_S)) as (visitor, places):
        visitor.writer.transport.pause_reading()  # type: ignore[attr-defined]
        visitor.writer.write(HEADERS + b"\r\n")
        await over.wait()
        assert places.open == 0


async def test_requests_are_not_queued_behind_an_answer() -> None:
    async with served({"a?": "yes\n"}, halt_at=0, bounds=PATIENT) as service:
        closed = asyncio.Event()
        service.side.on_close = closed.set
        async with client(service.port) as greedy:
            body = json.dumps(chat_body("a?")).encode()
            greedy.writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            while not service.admission.running:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            greedy.writer.write((HEADERS + b"\r\n") * 1000)
            assert await greedy.answered() == b""
            await closed.wait()


def test_one_address_may_fill_the_queue() -> None:
    for places in (1, 80, 4144):
        bounds = HttpBounds().for_queue(places)
        assert bounds.connections > bounds.of_address > places


@pytest.mark.parametrize(
    "over_tls",
    [test_places_are_taken_over_tls, test_a_handshake_that_does_not_come_ends_the_connection],
)
def test_tls_under_uvloop(over_tls: Callable[[Path], Any], tmp_path: Path) -> None:
    pytest.importorskip("uvloop").run(over_tls(tmp_path))
