"""One contract for every stream: TCP, TLS, memory, and emulated over memory."""

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest

from dragonrt.errors import LinkError
from dragonrt.link.emulation import EmulatedStream, memory_streams
from dragonrt.link.encryption import EncryptedStream
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import (
    HIGH_WATER,
    Stream,
    TcpStream,
    TlsError,
    connect,
    is_loopback,
    listen,
)
from dragonrt.link.tls import TlsStream, client_context, server_context
from dragonrt.timeouts import Timeouts
from tests.certificates import make_certificates

SIDES = ("cloud", "device")

Pair: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Stream, Stream]]]


@asynccontextmanager
async def tcp_pair() -> AsyncIterator[tuple[Stream, Stream]]:
    accepted: asyncio.Queue[TcpStream] = asyncio.Queue()

    async def handler(stream: TcpStream) -> None:
        accepted.put_nowait(stream)
        await stream.wait_closed()

    async with await listen("127.0.0.1", 0, handler) as server:
        client = await connect("127.0.0.1", server.port)
        yield client, await accepted.get()
        client.close()
        await client.wait_closed()


@asynccontextmanager
async def memory_pair() -> AsyncIterator[tuple[Stream, Stream]]:
    yield memory_streams()


@asynccontextmanager
async def emulated_pair() -> AsyncIterator[tuple[Stream, Stream]]:
    near, far = memory_streams()
    outgoing, incoming = (LinkModel(latency_s=0.001, bandwidth=1e10) for _ in range(2))
    emulated = EmulatedStream(near, outgoing, incoming)
    yield emulated, far
    emulated.close()
    await emulated.wait_closed()


@asynccontextmanager
async def encrypted_pair() -> AsyncIterator[tuple[Stream, Stream]]:
    near, far = memory_streams()
    device = EncryptedStream(near, b"k" * 32, dials=True)
    cloud = EncryptedStream(far, b"k" * 32, dials=False)
    device.write(b".")
    cloud.write(b".")
    at_cloud = asyncio.create_task(cloud.receive())
    assert (await device.receive(), await at_cloud) == (b".", b".")
    yield device, cloud


@asynccontextmanager
async def tls_pair() -> AsyncIterator[tuple[Stream, Stream]]:
    accepted: asyncio.Queue[TlsStream] = asyncio.Queue()
    with TemporaryDirectory() as name:
        place = Path(name)
        make_certificates(place)
        tls = server_context(place / "cloud.pem", place / "cloud.key")
        trusting = client_context(place / "authority.pem")

    async def handler(stream: TcpStream) -> None:
        cloud = TlsStream(stream, tls)
        await cloud.secure()
        accepted.put_nowait(cloud)
        await stream.wait_closed()

    async with await listen("127.0.0.1", 0, handler) as server:
        client = await connect("127.0.0.1", server.port, tls=trusting)
        cloud = await accepted.get()
        yield client, cloud
        client.close()
        cloud.close()  # a client waits for the other end's notice, for a while
        await client.wait_closed()


def far(pair: Pair) -> Pair:
    """The same pair, seen from its other end."""

    @asynccontextmanager
    async def swapped() -> AsyncIterator[tuple[Stream, Stream]]:
        async with pair() as (near, other):
            yield other, near

    return swapped


LAYERS: list[Pair] = [tls_pair, emulated_pair, encrypted_pair]


@pytest.fixture(params=[tcp_pair, memory_pair, *LAYERS, *map(far, LAYERS)])
def pair(request: pytest.FixtureRequest) -> Pair:
    made: Pair = request.param
    return made


async def receive_all(stream: Stream) -> bytes:
    chunks = []
    while data := await stream.receive():
        chunks.append(data)
    return b"".join(chunks)


async def receive_exactly(stream: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = await stream.receive()
        assert chunk, "the stream ended too early"
        data += chunk
    assert len(data) == size
    return data


async def test_both_directions_keep_the_order(pair: Pair) -> None:
    async with pair() as (a, b):
        for number in range(100):
            a.write(b"%03d" % number)
            b.write(b"%03d" % (999 - number))
        assert await receive_exactly(b, 300) == b"".join(b"%03d" % n for n in range(100))
        assert await receive_exactly(a, 300) == b"".join(b"%03d" % (999 - n) for n in range(100))


async def test_close_delivers_what_was_written_then_the_end(pair: Pair) -> None:
    async with pair() as (a, b):
        a.write(b"last words")
        a.close()
        assert await receive_all(b) == b"last words"
        assert await b.receive() == b"", "the end stays the end"
        await a.wait_closed()
        b.close()
        await b.wait_closed()


async def test_large_data_flows_while_it_is_read(pair: Pair) -> None:
    data = bytes(range(256)) * 4 * 1024 * 3
    async with pair() as (a, b):

        async def send() -> None:
            for start in range(0, len(data), 100_000):
                a.write(data[start : start + 100_000])
                await a.drain()
            a.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            received = tasks.create_task(receive_all(b))
        assert received.result() == data


async def test_drain_waits_for_a_reader_that_does_not_read(pair: Pair) -> None:
    async with pair() as (a, b):
        a.write(b"x")
        assert await receive_exactly(b, 1) == b"x"
        size = 0
        waiting = None
        while waiting is None:
            a.write(bytes(HIGH_WATER))
            size += HIGH_WATER
            assert size < 100 * 1024 * 1024, "drain never waited"
            draining = asyncio.create_task(a.drain())
            for _ in range(10):
                await asyncio.sleep(0)
            waiting = None if draining.done() else draining
        await receive_exactly(b, size)
        await waiting


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts segments for a program")
async def test_tcp_says_how_many_segments_were_sent_and_sent_again() -> None:
    async with tcp_pair() as (a, b):
        assert isinstance(a, TcpStream)
        a.write(bytes(100_000))
        await receive_exactly(b, 100_000)
        if a.segments is None:
            pytest.skip("this kernel does not count them")
        sent, again = a.segments
        assert sent >= 1
        assert 0 <= again <= sent


async def test_close_ends_our_own_receive(pair: Pair) -> None:
    async with pair() as (a, _):
        receiving = asyncio.create_task(a.receive())
        await asyncio.sleep(0)
        a.close()
        assert await receiving == b""
        a.close()
        await a.wait_closed()


async def test_after_the_end_writing_is_dropped_and_draining_fails(pair: Pair) -> None:
    async with pair() as (a, b):
        a.close()
        assert await receive_all(b) == b""
        for stream in (a, b):
            stream.write(b"into the void")
            with pytest.raises(LinkError):
                await stream.drain()


async def test_abort_is_an_error_or_the_end_at_the_other_side(pair: Pair) -> None:
    async with pair() as (a, b):
        a.write(bytes(1000))
        a.abort()
        with suppress(LinkError):
            await receive_all(b)
        await a.wait_closed()
        b.close()
        await b.wait_closed()


async def test_a_cancelled_receive_loses_nothing(pair: Pair) -> None:
    async with pair() as (a, b):
        receiving = asyncio.create_task(b.receive())
        await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait([receiving])
        a.write(b"still here")
        assert await receive_exactly(b, 10) == b"still here"


async def test_a_stream_that_was_closed_can_be_aborted(pair: Pair) -> None:
    async with pair() as (a, _):
        a.close()
        a.close()
        a.abort()
        await a.wait_closed()
        a.abort()


async def test_one_reader_at_a_time(pair: Pair) -> None:
    async with pair() as (a, b):
        receiving = asyncio.create_task(b.receive())
        await asyncio.sleep(0)
        with pytest.raises(LinkError):
            await b.receive()
        a.write(b"x")
        assert await receiving == b"x"


CONTRACT = [
    test_both_directions_keep_the_order,
    test_close_delivers_what_was_written_then_the_end,
    test_large_data_flows_while_it_is_read,
    test_drain_waits_for_a_reader_that_does_not_read,
    test_close_ends_our_own_receive,
    test_after_the_end_writing_is_dropped_and_draining_fails,
    test_abort_is_an_error_or_the_end_at_the_other_side,
    test_a_cancelled_receive_loses_nothing,
]


@pytest.mark.parametrize("contract", CONTRACT, ids=lambda contract: contract.__name__)
def test_tcp_under_uvloop(contract: Callable[[Pair], Coroutine[None, None, None]]) -> None:
    uvloop = pytest.importorskip("uvloop")
    uvloop.run(contract(tcp_pair))


# What only TCP has.


@pytest.mark.parametrize("name", ["getaddrinfo", "create_connection"])
async def test_no_such_host_and_no_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: object, **__: object) -> None:
        if name == "getaddrinfo":
            raise socket.gaierror(-2, "Name or service not known")
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), name, failing)
    with pytest.raises(LinkError):
        await connect("nowhere.invalid", 1, timeout_s=0.001)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_nobody_listens() -> None:
    port = free_port()
    with pytest.raises(LinkError) as caught:
        await connect("127.0.0.1", port)
    assert f"127.0.0.1:{port}: connection refused" in str(caught.value)


async def test_port_in_use() -> None:
    async def handler(_: TcpStream) -> None: ...

    async with await listen("127.0.0.1", 0, handler) as server:
        with pytest.raises(LinkError):
            await listen("127.0.0.1", server.port, handler)


async def test_a_failing_handler_is_reported_and_the_server_lives() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def handler(stream: TcpStream) -> None:
        if await stream.receive() == b"fail":
            raise ValueError("a bug")
        stream.write(b"fine")

    async with await listen("127.0.0.1", 0, handler) as server:
        for word, answer in ((b"fail", b""), (b"work", b"fine")):
            client = await connect("127.0.0.1", server.port)
            client.write(word)
            assert await receive_all(client) == answer
            client.close()
            await client.wait_closed()
    assert [str(context["exception"]) for context in reported] == ["a bug"]


async def test_closing_the_server_sends_the_handlers_last_bytes() -> None:
    started = asyncio.Event()

    async def handler(stream: TcpStream) -> None:
        started.set()
        try:
            await stream.receive()
        finally:
            stream.write(b"goodbye")

    server = await listen("127.0.0.1", 0, handler)
    port = server.port
    client = await connect("127.0.0.1", port)
    await started.wait()
    await server.close()
    assert await receive_all(client) == b"goodbye"
    with pytest.raises(LinkError):
        await connect("127.0.0.1", port)


async def test_a_peer_that_never_reads_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = "dragonrt.link.stream.USUAL"
    monkeypatch.setattr(usual, Timeouts(close_s=60.0))  # of the other end, which stays
    async with tcp_pair() as (a, _):
        monkeypatch.setattr(usual, Timeouts(close_s=0.001))
        a.write(bytes(64 * 1024 * 1024))
        a.close()
        await asyncio.wait_for(a.wait_closed(), 20.0)


async def test_a_connection_that_breaks_is_a_link_error() -> None:
    async with tcp_pair() as (a, b):
        assert isinstance(a, TcpStream)
        a.connection_lost(ConnectionResetError(104, "Connection reset by peer"))
        with pytest.raises(LinkError):
            await a.receive()
        b.close()


# TLS.


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """The cloud's certificate for 127.0.0.1, and its key."""
    make_certificates(tmp_path)
    return tmp_path / "cloud.pem", tmp_path / "cloud.key"


def secured(tls: ssl.SSLContext) -> Callable[[TcpStream], Awaitable[None]]:
    """Greet in TLS, then echo: who should not be let in hears of it instead of nothing."""

    async def handle(stream: TcpStream) -> None:
        carrier = TlsStream(stream, tls)
        with suppress(LinkError):
            await carrier.secure()
            carrier.write(b"hello")
            await echo(carrier)

    return handle


async def echo(stream: Stream) -> None:
    while data := await stream.receive():
        stream.write(data)


async def test_an_unknown_certificate_is_not_trusted(certificate: tuple[Path, Path]) -> None:
    async with await listen("127.0.0.1", 0, secured(server_context(*certificate))) as server:
        with pytest.raises(LinkError):
            await connect("127.0.0.1", server.port, tls=client_context())


async def test_tls_against_a_plain_server(certificate: tuple[Path, Path]) -> None:
    async with await listen("127.0.0.1", 0, echo) as server:
        with pytest.raises(LinkError):
            await connect("127.0.0.1", server.port, tls=client_context(certificate[0]))


def test_tls_files_are_named_when_they_are_wrong(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    pem, key = certificate
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("not a certificate")
    missing = tmp_path / "missing.pem"
    attempts: list[Callable[[], object]] = [
        lambda: server_context(missing, key),
        lambda: server_context(pem, missing),
        lambda: server_context(nonsense, key),
        lambda: server_context(key, pem),
        lambda: client_context(nonsense),
        lambda: client_context(missing),
        lambda: client_context(pem, pem),
    ]
    for attempt in attempts:
        with pytest.raises(LinkError) as caught:
            attempt()
        assert "\n" not in str(caught.value)


async def test_made_certificates_prove_each_side_in_its_own_role(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    authority, cloud, device = (tmp_path / f"{name}.pem" for name in ("authority", *SIDES))
    keys = {side: tmp_path / f"{side}.key" for side in SIDES}
    tls = server_context(cloud, keys["cloud"], authority)
    async with await listen("127.0.0.1", 0, secured(tls)) as server:
        right = client_context(authority, device, keys["device"])
        client = await connect("127.0.0.1", server.port, tls=right)
        client.write(b"secret")
        assert await receive_exactly(client, 11) == b"hellosecret"
        client.close()
        await client.wait_closed()
        posing = await connect(
            "127.0.0.1", server.port, tls=client_context(authority, cloud, keys["cloud"])
        )
        with suppress(LinkError):  # asyncio may close before it has sent the alert
            assert await posing.receive() == b""
        await posing.wait_closed()
        without = await connect("127.0.0.1", server.port, tls=client_context(authority))
        with pytest.raises(TlsError):
            await without.receive()
        await without.wait_closed()
    tls = server_context(device, keys["device"], authority)
    async with await listen("127.0.0.1", 0, secured(tls)) as server:
        with pytest.raises(LinkError):
            await connect("127.0.0.1", server.port, tls=right)


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("0.0.0.0", False),
        ("", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, ours: bool) -> None:
    assert is_loopback(host) is ours
