"""The two ends of the network: a cloud that listens, a device that dials."""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.link.encryption import EncryptedStream
from dragonrt.link.stream import (
    Server,
    Stream,
    TcpStream,
    TlsError,
    connect,
    is_loopback,
    listen,
)
from dragonrt.link.tls import TlsStream
from dragonrt.node.connections.admission import BoundedLines, CloudAdmission, PlaceLostError
from dragonrt.node.connections.peer import ConnectionLostError, Peer, log
from dragonrt.side import Side
from dragonrt.traces.file import Recorder
from dragonrt.wire.connection import Connection
from dragonrt.wire.encoding import encode
from dragonrt.wire.fields import NONCE_BYTES
from dragonrt.wire.frames import encode_frame
from dragonrt.wire.messages import PROTOCOL_VERSION, Goodbye, Hello
from dragonrt.wire.reasons import BusyError

if TYPE_CHECKING:
    from dragonrt.backends.model import LanguageModel


@dataclass(frozen=True, slots=True)
class Identity:
    """A side's part of the handshake; `corpus` returns `LocalSide.corpus`."""

    side: Side
    model: "LanguageModel"
    corpus: Callable[[], str] = lambda: "unknown"

    def hello(self) -> Hello:
        """Return a Hello with a fresh nonce, for one connection."""
        return Hello(
            version=PROTOCOL_VERSION,
            nonce=os.urandom(NONCE_BYTES),
            role=self.side,
            tokenizer=self.model.tokenizer_fingerprint,
            vocabulary=self.model.vocabulary,
            model=self.model.name,
            software=f"dragonrt {__version__}",
            weights=self.model.fingerprint,
            corpus=self.corpus(),
            clock_ms=time.time_ns() // 10**6,
        )


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a cloud. A shared `key` encrypts all data; `emulate` wraps each stream.

    A device dials an `exposed` one only if that is meant to be `insecure`.
    """

    host: str
    port: int
    key: bytes | None = None
    tls: ssl.SSLContext | None = None
    emulate: Callable[[Stream], Stream] | None = None
    insecure: bool = False

    @property
    def exposed(self) -> bool:
        """Whether others could read and change what is sent to this host."""
        return not (is_loopback(self.host) or self.key is not None or self.tls is not None)

    def check(self) -> None:
        """Raise TlsError if a device may not dial it."""
        if self.exposed and not self.insecure:
            raise TlsError(
                f"anyone on the way to {self.host} could read and change what is sent: give both "
                "sides the same --key-file, or use TLS with --tls or --tls-ca (--insecure dials it)"
            )

    def check_listening(self) -> None:
        """Raise DragonError if a cloud may not listen on it: anyone could connect."""
        knows_devices = self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED
        if not (is_loopback(self.host) or self.key is not None or knows_devices):
            raise DragonError(
                f"listening on {self.host} lets anyone in: give both sides the same --key-file, "
                "or ask devices for certificates with --tls-cert, --tls-key and --tls-ca"
            )

    def around(self, stream: Stream, side: Side) -> Stream:
        """Return the stream, emulated and encrypted as the address requires."""
        link = self.emulate(stream) if self.emulate is not None else stream
        key, dials = self.key, side == "device"
        return link if key is None else EncryptedStream(link, key, dials=dials)

    async def reach(self) -> TcpStream:
        """Connect as a device. Raises LinkError."""
        self.check()
        return await connect(self.host, self.port, tls=self.tls)

    def begin(self, stream: TcpStream, identity: Identity) -> tuple[Stream, Connection]:
        """Return a device's stream around that one, and the state of the connection on it."""
        connection = Connection(identity.side, identity.hello(), self.key)
        return self.around(stream, identity.side), connection

    async def dial(self, identity: Identity) -> tuple[Stream, Connection]:
        """Reach and begin. Raises LinkError."""
        return self.begin(await self.reach(), identity)


async def serve(
    address: Address,
    identity: Identity,
    admission: CloudAdmission,
    recorder: Recorder,
    on_change: Callable[[str], None] = log.info,
) -> Server:
    """Listen as the cloud; log a line with `on_change` when a device joins, leaves or is refused.

    Silent connections, which balancers make, are not logged, and lines per host are limited. Raises
    DragonError for an address beyond loopback without a key or certificates.
    """
    address.check_listening()
    lines = BoundedLines(on_change, asyncio.get_running_loop().time)

    async def handle(stream: TcpStream) -> None:
        name = stream.peer_name
        host = name.rpartition(":")[0]
        carrier = stream if address.tls is None else TlsStream(stream, address.tls)

        def heard() -> bool:
            return stream.bytes_received > 0

        def refuse(error: BusyError) -> None:
            # No key is agreed on yet: a device with a key accepts the reason in the clear.
            carrier.write(encode_frame(encode(Goodbye(error.reason, error.text))))

        def dismiss() -> None:
            if not heard():
                refuse(BusyError("too many unauthenticated connections", 1.0))

        peer = Peer(
            address.around(carrier, identity.side),
            Connection(identity.side, identity.hello(), address.key),
            recorder.of(name),  # devices number their sessions alike
            admission.answering,
            admission.timeouts,
        )
        try:
            async with admission.handshakes.place(host, heard, dismiss):
                if isinstance(carrier, TlsStream):
                    await carrier.secure()
                admission.check_room()
                await peer.handshake()
        except BusyError as error:
            admission.refused += 1
            refuse(error)
            lines.say(host, f"refused {name}: {error}")
            return
        except (DragonError, PlaceLostError) as error:
            if heard() or isinstance(error, ConnectionLostError | TlsError | PlaceLostError):
                lines.say(host, f"refused {name}: {error}")
            return
        try:
            with admission.admit(peer):
                lines.say(host, f"{name} connected")
                await peer.run()
        except BusyError as error:
            lines.say(host, f"refused {name}: {error}")
            await peer.refuse(error)
        else:
            lines.say(host, f"{name} left: {peer.end or 'done'}")

    return await listen(address.host, address.port, handle)
