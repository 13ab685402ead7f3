"""What is written with the same key at both ends arrives, and nothing else does."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.link import encryption
from dragonrt.link.emulation import memory_streams
from dragonrt.link.encryption import EncryptedStream
from dragonrt.link.stream import Layer, Stream
from dragonrt.testing.loop import run
from dragonrt.wire.encoding import FrameDecoder, decode
from dragonrt.wire.messages import Goodbye
from dragonrt.wire.reasons import HandshakeError, Reason

KEY = b"0123456789abcdef"


class Wire(Layer):
    """A stream that records what is written, and writes it altered."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._inner = stream
        self.recorded = b""
        self.alter: Callable[[bytes], bytes] = lambda data: data

    @override
    async def receive(self) -> bytes:
        return await self._inner.receive()

    @override
    def write(self, data: bytes) -> None:
        self.recorded += data
        if altered := self.alter(data):
            self._inner.write(altered)


async def agreed(
    near: Stream, far: Stream, device_key: bytes = KEY, cloud_key: bytes = KEY
) -> tuple[EncryptedStream, EncryptedStream]:
    """Both ends after the first bytes of each have arrived."""
    device = EncryptedStream(near, device_key, dials=True)
    cloud = EncryptedStream(far, cloud_key, dials=False)
    device.write(b"from the device")
    cloud.write(b"from the cloud")
    at_cloud = asyncio.create_task(cloud.receive())
    assert await device.receive() == b"from the cloud"
    assert await at_cloud == b"from the device"
    return device, cloud


async def test_nothing_is_in_the_clear_and_connections_differ() -> None:
    recorded = []
    for _ in range(2):
        ends = memory_streams()
        wires = Wire(ends[0]), Wire(ends[1])
        device, cloud = await agreed(*wires)
        device.write(b"secret" * 100)
        assert await cloud.receive() == b"secret" * 100
        recorded.append(wires[0].recorded)
        assert all(b"from" not in wire.recorded for wire in wires)
        assert b"secret" not in wires[0].recorded
    assert len(recorded[0]) == len(recorded[1]) == 50 + (2 + 15 + 16) + (2 + 600 + 16)
    assert recorded[0] != recorded[1]


async def test_any_split_of_the_bytes_is_the_same() -> None:
    near, far = memory_streams()
    wire = Wire(near)
    device, cloud = await agreed(wire, far)
    wire.recorded, wire.alter = b"", lambda data: b""
    for size in (1, 100_000):
        device.write(bytes(size))
    for number in range(len(wire.recorded)):
        near.write(wire.recorded[number : number + 1])
        if number % 1000 == 999:
            await asyncio.sleep(0)
    received = 0
    while received < 100_001:
        received += len(await cloud.receive())
    assert received == 100_001


@pytest.mark.parametrize("keys", [(KEY, b"another key of 16"), (b"another key of 16", KEY)])
def test_another_key_is_refused_on_both_sides(keys: tuple[bytes, bytes]) -> None:
    async def both() -> Sequence[bytes | BaseException]:
        near, far = memory_streams()
        device = EncryptedStream(near, keys[0], dials=True)
        cloud = EncryptedStream(far, keys[1], dials=False)
        for end in (cloud, device):  # else two sides that agree wait for what the other says
            end.write(b"hello")
        ends = (cloud.receive(), device.receive())
        return await asyncio.gather(*ends, return_exceptions=True)

    for found in run(both()):
        assert isinstance(found, HandshakeError)
        assert found.reason is Reason.KEY


async def test_a_device_without_a_key_is_told_in_the_clear() -> None:
    near, far = memory_streams()
    near.write(b"\0\0\0\x07hello..")
    with pytest.raises(HandshakeError):
        await EncryptedStream(far, KEY, dials=False).receive()
    frames = FrameDecoder()
    frames.feed(await near.receive())
    body = frames.next_body()
    assert body is not None
    goodbye = decode(body)
    assert isinstance(goodbye, Goodbye)
    assert goodbye.reason is Reason.KEY


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request", b"\x15\x03\x03\0\x02\x02F"])
@pytest.mark.parametrize("dials", [True, False])
async def test_what_is_no_dragonrt_is_refused(said: bytes, dials: bool) -> None:
    near, far = memory_streams()
    far.write(said)
    with pytest.raises(HandshakeError) as caught:
        await EncryptedStream(near, KEY, dials=dials).receive()
    assert caught.value.reason is Reason.MALFORMED


async def test_a_point_that_is_none_is_refused() -> None:
    near, far = memory_streams()
    far.write(b"\0\x30" + bytes(48))
    with pytest.raises(HandshakeError):
        await EncryptedStream(near, KEY, dials=True).receive()


async def test_the_end_before_keys_are_agreed_on_is_the_end() -> None:
    near, far = memory_streams()
    stream = EncryptedStream(near, KEY, dials=True)
    stream.write(b"never sent")
    far.write(b"\0\x30abc")
    far.close()
    assert await stream.receive() == b""


@pytest.mark.parametrize("place", [0, 1, 2, 9, -1])
async def test_an_altered_record_breaks_the_link(place: int) -> None:
    near, far = memory_streams()
    wire = Wire(far)
    device, cloud = await agreed(near, wire)

    def alter(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[place] ^= 1
        return bytes(changed) + bytes(700)  # a longer length finds its bytes

    wire.alter = alter
    cloud.write(b"ten tokens")
    with pytest.raises(LinkError):
        await device.receive()


@pytest.mark.parametrize("order", [[0, 0], [1, 0], [1]])
async def test_records_neither_come_twice_nor_in_another_order(order: list[int]) -> None:
    near, far = memory_streams()
    wire = Wire(far)
    device, cloud = await agreed(near, wire)
    wire.recorded, wire.alter = b"", lambda data: b""
    cloud.write(b"one")
    cloud.write(b"two")
    size = len(wire.recorded) // 2
    for number in order:
        far.write(wire.recorded[number * size :][:size])
    with pytest.raises(LinkError):
        await device.receive()


async def test_keys_change_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sealed(rekey_after: int) -> list[bool]:
        """Send each record sealed by a side that changes its key at another time."""
        device, cloud = await agreed(*memory_streams())
        opened = []
        for _ in range(4):
            monkeypatch.setattr(encryption, "REKEY_AFTER", rekey_after)
            device.write(b"x")
            monkeypatch.setattr(encryption, "REKEY_AFTER", 3)
            try:
                opened.append(await cloud.receive() == b"x")
            except LinkError:
                return opened
        return opened

    assert encryption.REKEY_AFTER == 65_536, "both sides count alike, of any version"
    assert await sealed(3) == [True] * 4
    assert await sealed(2**16) == [True] * 2
