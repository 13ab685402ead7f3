"""A stream encrypted and authenticated with the shared key: Noise over any other stream.

The protocol is Noise_NNpsk0_25519_ChaChaPoly_SHA256 (The Noise Protocol Framework, revision 34).
The shared key authenticates both sides; fresh X25519 keys per connection give forward secrecy.
Nothing is negotiated, so no downgrade is possible: a side with a key accepts no plaintext.

    device -> cloud   0030 | e, psk                    48 bytes after their length
    cloud -> device   0030 | e, ee
    both              length (2 bytes) | sealed        as often as needed, at most 65,535 bytes each

A side that cannot accept the other's first message answers with a plaintext Goodbye, whose frame
begins with two zero bytes, as no Noise message does. As it is forgeable, only its reason is used.
"""

import hashlib
from typing import Final

from cryptography.exceptions import InvalidTag
from noise.connection import NoiseConnection
from noise.exceptions import NoiseInvalidMessage
from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.link.stream import Layer, Stream
from dragonrt.wire.connection import HANDSHAKE_LIMIT
from dragonrt.wire.encoding import FrameDecoder, decode, encode, encode_frame
from dragonrt.wire.messages import Goodbye
from dragonrt.wire.reasons import HandshakeError, Reason, WireError

LENGTH_BYTES = 2
MOST_SEALED = 65_535
TAG_BYTES = 16
REKEY_AFTER = 2**16  # records of one direction per key; the next key is derived from it

KEYS_DIFFER = "shared key does not match; give both sides the same --key-file"
NO_PLACE = "the cloud has no place for another connection now"

_PROTOCOL: Final = b"Noise_NNpsk0_25519_ChaChaPoly_SHA256"
_PROLOGUE: Final = b"dragonrt link 1"
_PSK_LABEL: Final = b"dragonrt link psk 1 "
_FIRST = 48  # bytes of each side's first message


class EncryptedStream(Layer):
    """A Stream over `stream`, encrypted with keys derived from the shared `key`.

    A side that `dials`, the device, begins the handshake. The first `receive` completes it, or
    raises HandshakeError for a wrong or missing key. Bytes written before are sent after it.
    Bytes that were altered on the way make `receive` raise LinkError.
    """

    def __init__(self, stream: Stream, key: bytes, *, dials: bool) -> None:
        super().__init__(stream)
        self._noise = NoiseConnection.from_name(_PROTOCOL)
        self._noise.set_psks(hashlib.sha256(_PSK_LABEL + key).digest())
        self._noise.set_prologue(_PROLOGUE)
        self._dials = dials
        self._waiting: list[bytes] = []  # written before the keys are agreed on
        self._sealed = bytearray()  # received and not opened yet
        self._records_in = self._records_out = 0
        if dials:
            self._noise.set_as_initiator()
        else:
            self._noise.set_as_responder()
        self._noise.start_handshake()
        if dials:
            self._send_first()

    @override
    async def receive(self) -> bytes:
        if not self._noise.handshake_finished and not await self._agree():
            return b""
        while True:
            opened = self._open_whole_records()
            if opened:
                return opened
            data = await self._stream.receive()
            if not data:
                return b""
            self._sealed += data

    @override
    def write(self, data: bytes) -> None:
        if not self._noise.handshake_finished:
            self._waiting.append(bytes(data))
            return
        most = MOST_SEALED - TAG_BYTES
        records = []
        for start in range(0, len(data), most):
            sealed = self._noise.encrypt(bytes(data[start : start + most]))
            records.append(len(sealed).to_bytes(LENGTH_BYTES, "big") + sealed)
            self._records_out += 1
            if self._records_out % REKEY_AFTER == 0:
                self._noise.rekey_outbound_cipher()
        self._stream.write(b"".join(records))

    # Key agreement.

    async def _agree(self) -> bool:
        """Read the other side's first message; return False if the stream ended before."""
        while (first := self._take_first()) is None:
            data = await self._stream.receive()
            if not data:
                return False
            self._sealed += data
        try:
            self._noise.read_message(first)
        except (InvalidTag, ValueError):  # another key, or an invalid point
            raise self._refusal(Reason.KEY, KEYS_DIFFER) from None
        if not self._dials:
            self._send_first()
        waiting, self._waiting = self._waiting, []
        self.write(b"".join(waiting))
        return True

    def _send_first(self) -> None:
        self._stream.write(_FIRST.to_bytes(LENGTH_BYTES, "big") + self._noise.write_message())

    def _take_first(self) -> bytes | None:
        """Return the first message, None until it is complete; reject an impossible prefix."""
        length = int.from_bytes(self._sealed[:LENGTH_BYTES], "big")
        if len(self._sealed) < LENGTH_BYTES:
            return None
        if length == 0:
            if self._dials and not self._refused_for_good():
                return None
            raise self._refusal(Reason.KEY, KEYS_DIFFER)
        if length != _FIRST:
            raise self._refusal(
                Reason.MALFORMED,
                "the other side does not speak this protocol: is dragonrt running there, and is "
                "TLS on at both ends or at neither?",
            )
        if len(self._sealed) < LENGTH_BYTES + _FIRST:
            return None
        first = bytes(self._sealed[LENGTH_BYTES : LENGTH_BYTES + _FIRST])
        del self._sealed[: LENGTH_BYTES + _FIRST]
        return first

    def _refused_for_good(self) -> bool:
        """Return whether a plaintext Goodbye is complete; raise if the other side is busy."""
        frames = FrameDecoder(HANDSHAKE_LIMIT)
        frames.feed(bytes(self._sealed))
        try:
            body = frames.next_body()
            sent = decode(body, {Goodbye}) if body is not None else None
        except WireError:
            return True
        if isinstance(sent, Goodbye) and sent.reason is Reason.BUSY:
            raise HandshakeError(Reason.BUSY, NO_PLACE)
        return body is not None

    def _refusal(self, reason: Reason, text: str) -> HandshakeError:
        if not self._dials:
            self._stream.write(encode_frame(encode(Goodbye(reason, text))))
        return HandshakeError(reason, text)

    # Opening records.

    def _open_whole_records(self) -> bytes:
        opened = []
        start = 0
        while len(self._sealed) >= start + LENGTH_BYTES:
            body = start + LENGTH_BYTES
            end = body + int.from_bytes(self._sealed[start:body], "big")
            if len(self._sealed) < end:
                break
            opened.append(self._open(bytes(self._sealed[body:end])))
            start = end
        del self._sealed[:start]
        return b"".join(opened)

    def _open(self, sealed: bytes) -> bytes:
        try:
            opened = bytes(self._noise.decrypt(sealed))
        except NoiseInvalidMessage:
            self._sealed.clear()
            raise LinkError(
                f"what came from {self.peer_name} was altered on the way or is not from there: "
                "the connection is closed"
            ) from None
        self._records_in += 1
        if self._records_in % REKEY_AFTER == 0:
            self._noise.rekey_inbound_cipher()
        return opened
