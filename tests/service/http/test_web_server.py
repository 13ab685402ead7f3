"""What a stranger may take of the service: time and places, over real sockets."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from dragonrt.link.tls import client_context, server_context
from dragonrt.service.http import request_body
from dragonrt.service.http.guard import ApiKeys
from dragonrt.service.http.web_server import HttpBounds, Places, listen_on, serving
from tests.certificates import make_certificates

from .served import BOUND_S, Served, chat_body, served

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
    service: Served, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1"
) -> AsyncIterator[Client]:
    port = int(service.url.rpartition(":")[2])
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


async def all_left(service: Served) -> None:
    """Until every place is free."""
    async with asyncio.timeout(BOUND_S):
        while service.places.open:  # noqa: ASYNC110 (what a server does is no event of ours)
            await asyncio.sleep(0.001)


def bounded(**seconds: float) -> HttpBounds:
    """Bounds of which these alone count."""
    return replace(PATIENT, **seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begun", "drip"), [(b"", b""), (b"\r\n", b"x"), (b"GET /hea", b"x"), (HEADERS, b"")]
)
async def test_headers_that_do_not_come_end_the_connection(begun: bytes, drip: bytes) -> None:
    async with (
        served({}, keys=KEYS, bounds=bounded(head_s=SOON_S)) as service,
        client(service) as slow,
    ):
        slow.writer.write(begun)
        answered = await slow.drips(lambda: drip)
        # One who drips into the first line may be refused for what that line says.
        assert answered.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400")) or drip == b"x"
        assert service.places.open == 0


async def test_headers_of_a_later_request_have_no_more_time() -> None:
    async with (
        served({}, keys=KEYS, bounds=bounded(head_s=SOON_S)) as service,
        client(service) as slow,
    ):
        assert b"200" in await slow.asks()
        await slow.reader.read(65536)
        slow.writer.write(HEADERS)
        assert (await slow.answered()).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("length", [SIZED, CHUNKED])
async def test_a_body_that_drips_ends_the_connection(
    length: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "BODY_S", SOON_S)
    piece = b"1\r\nx\r\n" if length == CHUNKED else b"x"
    async with served({}, bounds=PATIENT) as service, client(service) as slow:
        slow.writer.write(POST + length + b"\r\n")
        assert (await slow.drips(lambda: piece)).startswith(b"HTTP/1.1 408")


async def test_a_large_body_has_time_for_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"model": "bytes", "messages": []}'
    monkeypatch.setattr(request_body, "BODY_S", SOON_S)
    monkeypatch.setattr(request_body, "BYTES_PER_S", 1)  # so each byte gives a second
    async with served({}, bounds=PATIENT) as service, client(service) as slow:
        slow.writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
        await asyncio.sleep(2 * SOON_S)
        slow.writer.write(body[-1:])
        assert b"400" in await slow.reader.readline()


async def test_a_body_that_nobody_reads_is_not_waited_for() -> None:
    async with (
        served({}, keys=KEYS, bounds=bounded(head_s=SOON_S)) as service,
        client(service) as stranger,
    ):
        stranger.writer.write(POST + SIZED + b"\r\n")
        assert (await stranger.drips(lambda: b"x")).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(("size", "end"), [(33_000, b""), (2**20, b"\r\n\r\n")])
async def test_long_headers_are_refused(size: int, end: bytes) -> None:
    async with served({}, bounds=PATIENT) as service, client(service) as stranger:
        assert b"200" in await stranger.asks()
        await stranger.reader.read(65536)
        stranger.writer.write(HEADERS + b"X: " + b"x" * size + end)
        assert (await stranger.answered()).startswith((b"HTTP/1.1 400", b""))


@pytest.mark.parametrize("trailer", [b"0\r\nX: ", b"1;x="])
async def test_long_trailers_are_refused(trailer: bytes) -> None:
    async with served({}, bounds=PATIENT) as service, client(service) as stranger:
        stranger.writer.write(POST + CHUNKED + b"\r\n1\r\n{\r\n" + trailer + b"x" * 66_000)
        assert (await stranger.answered()).startswith(b"HTTP/1.1 400")


async def test_trailers_are_no_headers() -> None:
    found: list[list[bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        found.append([name for name, _ in scope["headers"]])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    with listen_on("127.0.0.1", 0) as listening:
        async with asyncio.timeout(BOUND_S), serving(app, listening, None, Places(PATIENT)):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            for ending in (b"0\r\nHost: elsewhere\r\n\r\n", b"0\r\n\r\n"):
                writer.write(POST + CHUNKED + b"\r\n1\r\n{\r\n" + ending)
                assert b"204" in await reader.readline()
                await reader.readuntil(b"\r\n\r\n")
            writer.close()
    names = [b"host", b"content-type", b"transfer-encoding"]
    assert found == [names, names]


async def test_a_body_that_will_be_too_large_is_refused_at_once() -> None:
    async with served({}, bounds=PATIENT) as service, client(service) as stranger:
        stranger.writer.write(POST + b"Content-Length: 3000000\r\n\r\n")
        assert (await stranger.answered()).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("stream", [False, True])
async def test_garbage_behind_a_request_ends_the_connection(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with served({"a?": "yes\n"}, halt_at=2, bounds=PATIENT) as service:
        closed = asyncio.Event()
        service.side.on_close = closed.set
        async with client(service) as stranger:
            body = json.dumps(chat_body("a?", stream=stream)).encode()
            stranger.writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            if stream:
                assert b"200" in await stranger.reader.readline()
            else:
                while not service.admission.running:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            stranger.writer.write(b"\x00" * 1000)
            await stranger.answered()
            await closed.wait()
    assert not caplog.records


async def test_a_broken_chunk_behind_a_response_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    with listen_on("127.0.0.1", 0) as listening:
        async with asyncio.timeout(BOUND_S), serving(app, listening, None, Places(PATIENT)):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(POST + CHUNKED + b"\r\n1\r\n{\r\n")
            await begun.wait()
            writer.write(b"no chunk\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
    assert not caplog.records


async def test_a_request_names_one_host() -> None:
    async with served({}, bounds=PATIENT) as service, client(service) as stranger:
        stranger.writer.write(HEADERS + b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert (await stranger.answered()).startswith(b"HTTP/1.1 400")


async def test_a_try_to_upgrade_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with served({}, bounds=PATIENT) as service, client(service) as stranger:
        stranger.writer.write(HEADERS + upgrade)
        assert b"200" in await stranger.reader.readline()
    assert not caplog.records


async def test_an_idle_connection_is_ended() -> None:
    async with served({}, bounds=bounded(idle_s=SOON_S)) as service, client(service) as idle:
        assert b"200" in await idle.asks()
        await idle.answered()


async def test_one_address_takes_its_places_and_no_other_ones() -> None:
    bounds = bounded(of_address=2, connections=3)
    async with served({}, bounds=bounds) as service:
        async with client(service) as first, client(service) as second:
            assert b"200" in await first.asks()
            assert b"200" in await second.asks()
            async with client(service) as third:
                assert (await third.answered()).startswith(b"HTTP/1.1 503")
            async with client(service, source="127.0.0.2") as another:
                assert b"200" in await another.asks()
                async with client(service, source="127.0.0.3") as last:
                    assert (await last.answered()).startswith(b"HTTP/1.1 503")
        await all_left(service)
        async with client(service) as again:
            assert b"200" in await again.asks()
        assert service.places.refused == 2


async def test_places_are_taken_over_tls(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = server_context(tmp_path / "cloud.pem", tmp_path / "cloud.key")
    trusted = client_context(tmp_path / "authority.pem")
    bounds = bounded(of_address=2)
    async with served({}, tls=context, trusted=trusted, bounds=bounds) as service:
        async with client(service, tls=trusted) as first, client(service, tls=trusted) as known:
            assert b"200" in await first.asks()
            assert b"200" in await known.asks()
            async with client(service, tls=trusted) as third:
                assert (await third.answered()).startswith(b"HTTP/1.1 503")
        await all_left(service)
        async with client(service, tls=trusted) as again:
            assert b"200" in await again.asks()


async def test_a_handshake_that_does_not_come_ends_the_connection(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = server_context(tmp_path / "cloud.pem", tmp_path / "cloud.key")
    async with served({}, tls=context, bounds=bounded(head_s=SOON_S)) as service:
        async with client(service) as silent:
            assert await silent.answered() == b""
        async with client(service) as plain:
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

    with listen_on("127.0.0.1", 0) as listening:
        places = Places(bounded(taken_in_s=SOON_S))
        async with serving(large, listening, None, places):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(HEADERS + b"\r\n")
            async with asyncio.timeout(BOUND_S):
                await over.wait()
            assert places.open == 0
            writer.close()


async def test_requests_are_not_queued_behind_an_answer() -> None:
    async with served({"a?": "yes\n"}, halt_at=0, bounds=PATIENT) as service:
        closed = asyncio.Event()
        service.side.on_close = closed.set
        async with client(service) as greedy:
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
    [
        test_places_are_taken_over_tls,
        test_a_handshake_that_does_not_come_ends_the_connection,
    ],
)
def test_tls_under_uvloop(over_tls: Callable[[Path], Any], tmp_path: Path) -> None:
    pytest.importorskip("uvloop").run(over_tls(tmp_path))
