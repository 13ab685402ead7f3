"""Whatever bytes come from outside, only documented errors come out: one function per way in.

Each takes any bytes, lets out what is a defect, and needs no fuzzer: `fuzzing` feeds them.
"""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

import numpy as np
from typing_extensions import override

from dragonrt.distributions import codec, decode_block
from dragonrt.distributions.protocol import Codec, Step
from dragonrt.errors import CodecError, DragonError, LinkError
from dragonrt.link.encryption import EncryptedStream
from dragonrt.link.shared_key import parse_key
from dragonrt.link.stream import Stream
from dragonrt.modes import mode_entry
from dragonrt.modes.question import Question
from dragonrt.side import Side
from dragonrt.wire.connection import HANDSHAKE_LIMIT, Connection, State
from dragonrt.wire.encoding import FrameDecoder, decode, encode, encode_frame
from dragonrt.wire.fields import NONCE_BYTES, unpack
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello, Open, Opened
from dragonrt.wire.reasons import HandshakeError, MessageError, RemoteProtocolError
from scripts.fuzz_documents import documents, file_names, indexes

Target = Callable[[bytes], None]

KEY: Final = b"0123456789abcdef"
CODECS: Final = (
    *("ids", "dense:fp16", "dense:fp32", "topp:0.9", "topk:8:renorm", "topk:8:residual"),
    *("qs:100", "ksqs:8:100", "csqs:0.01:100"),
)
VOCABULARIES: Final = (8, 300, 5003)


def frames(data: bytes) -> None:
    """Bytes of a stranger, in pieces, until the first error."""
    decoder = FrameDecoder(HANDSHAKE_LIMIT)
    size = 1 + data[0] if data else 1
    try:
        for start in range(1, len(data), size):
            decoder.feed(data[start : start + size])
            while (body := decoder.next_body()) is not None:
                assert len(body) <= HANDSHAKE_LIMIT
    except RemoteProtocolError:
        pass


def messages(data: bytes) -> None:
    """A body: a message that travels as it is, or a MessageError; what an Open asks for, too."""
    try:
        message = decode(data)
    except MessageError:
        return
    body = encode(message)  # compared as bytes: what an Open packs may be NaN, until it is unpacked
    assert encode(decode(body)) == body
    if isinstance(message, Open):
        try:
            entry = mode_entry(message.mode)
            unpack(Question, message.question).check_vocabulary(1000)
            unpack(entry.settings, message.settings)
        except DragonError:
            pass


def _hello(side: Side) -> Hello:
    return Hello(PROTOCOL_VERSION, bytes(NONCE_BYTES), side, "t" * 16, 1000, "model", "fuzz")


def handshake(data: bytes) -> None:
    """The first bytes of a connection, to either side of it."""
    for side in ("device", "cloud"):
        connection = Connection(side, _hello(side), KEY)
        size = 1 + data[0] if data else 1
        try:
            for start in range(1, len(data), size):
                connection.receive_data(data[start : start + size])
            connection.eof()
        except HandshakeError:
            assert connection.closed


def connection(data: bytes) -> None:
    """Frames of a side that has proven the key: each piece of the data becomes a body."""
    cloud, device = (Connection(side, _hello(side), KEY) for side in ("cloud", "device"))
    for _ in range(2):
        cloud.receive_data(device.data_to_send())
        device.receive_data(cloud.data_to_send())
    assert cloud.state is State.OPEN
    try:
        while len(data) >= 2 and not cloud.closed:
            length = int.from_bytes(data[:2], "little")
            events = cloud.receive_data(encode_frame(data[2 : 2 + length]))
            data = data[2 + length :]
            for event, _ in events:
                if isinstance(event, Open):
                    cloud.send(Opened(event.session, 1, 1, 1))
        cloud.eof()
    except RemoteProtocolError:
        assert cloud.closed


def codecs(data: bytes) -> None:
    """Payloads of every codec: of one distribution, or of a block."""
    if len(data) < 3:
        return
    chosen = _codec(CODECS[data[0] % len(CODECS)], VOCABULARIES[data[1] % len(VOCABULARIES)])
    count, payload = data[2] % 4, data[3:]
    try:
        if count == 0:
            distributions = [chosen.decode(payload)]
        else:
            steps = [Step(number, (None, 7, 1000)[data[2] % 3]) for number in range(count)]
            tokens, decoded = decode_block(chosen, payload, steps)
            assert all(0 <= token < chosen.vocabulary for token in tokens)
            distributions = decoded or []
    except CodecError:
        return
    for each in distributions:
        p = each.to_dense()
        assert p.shape == (chosen.vocabulary,)
        assert np.isfinite(p).all()
        assert p.min() >= 0
        assert abs(float(p.sum()) - 1) < 1e-3


@cache
def _codec(name: str, vocabulary: int) -> Codec:
    return codec(name, vocabulary)


def names(data: bytes) -> None:
    """What people and the other side write: the name of a codec, a shared key."""
    text = data.decode(errors="replace")
    with suppress(CodecError):
        codec(text, 1000)
    with suppress(LinkError):
        assert parse_key(parse_key(text)) == parse_key(text)


class _Bytes(Stream):
    """A stream that has these bytes, in pieces, and then ends. It never waits."""

    peer_name = "fuzz"

    def __init__(self, data: bytes, size: int) -> None:
        self.written = b""
        self._pieces = [data[start : start + size] for start in range(0, len(data), size)]

    @override
    async def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    @override
    def write(self, data: bytes) -> None:
        self.written += data

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)


def encryption(data: bytes) -> None:
    """Bytes of who has no key, to either side before keys are agreed on, or after that."""
    if not data:
        return
    size = 1 + data[0] // 3
    if data[0] % 3:
        stranger = EncryptedStream(_Bytes(data[1:], size), KEY, dials=data[0] % 3 == 1)
        with suppress(HandshakeError):
            assert not _now(stranger.receive()), "bytes without the key were taken"
        return
    near, far = _Bytes(b"", 1), _Bytes(b"", 1)
    device, cloud = (EncryptedStream(each, KEY, dials=each is near) for each in (near, far))
    far.feed(near.written)
    _now(cloud.receive())
    near.feed(far.written)
    _now(device.receive())
    device.write(b"true")
    far.feed(near.written[50:])
    assert _now(cloud.receive()) == b"true"
    far.feed(data[1:])
    with suppress(LinkError):
        assert not _now(cloud.receive()), "bytes without the key were taken"


def _now(coroutine: Coroutine[Any, Any, bytes]) -> bytes:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: bytes = end.value
        return result
    raise AssertionError("it waits")


def http_bodies(data: bytes) -> None:
    """Bodies of every API: what they ask for, or an ApiError."""
    from dragonrt.service.http.api_request import ApiError, ApiRequest, json_object
    from dragonrt.service.http.forms import FORMS

    defaults = ApiRequest(Question(max_tokens=64), 5, ("END",), True, 200)
    for form in FORMS.values():
        try:
            asked = form.parse(json_object(data), defaults)
            assert 1 <= asked.question.max_tokens <= 200
            assert asked.question.prompt.strip()
        except ApiError as error:
            if not 400 <= error.status < 500:
                raise


TARGETS: Final[Mapping[str, Target]] = {
    each.__name__: each
    for each in (
        *(frames, messages, handshake, connection, codecs, names, encryption, http_bodies),
        *(documents, file_names, indexes),
    )
}
