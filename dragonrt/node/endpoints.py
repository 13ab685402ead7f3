"""The two ends of the network: a cloud that listens, a device that dials."""

import asyncio
import ipaddress
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.encryption import EncryptedStream
from dragonrt.link.models import JitterKind
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Server, Stream, TcpStream, TlsError, connect, listen
from dragonrt.link.tls_stream import TlsStream
from dragonrt.link.units import parse_bandwidth, parse_duration
from dragonrt.node.connector import Connector
from dragonrt.node.gatekeeper import BoundedLines, Gatekeeper
from dragonrt.node.lobby import Lobby, MadeWayError
from dragonrt.node.peer import Answerer, ConnectionLostError, Peer, log
from dragonrt.node.preparing import Preparer
from dragonrt.side import Side
from dragonrt.timeouts import Timeouts
from dragonrt.traces.file import Recorder
from dragonrt.wire.connection import Connection
from dragonrt.wire.encoding import encode
from dragonrt.wire.frames import encode_frame
from dragonrt.wire.limits import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Goodbye, Hello
from dragonrt.wire.reasons import BusyError

NO_PLACE = BusyError("too many connections have not said who they are", 1.0)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a side says of itself in the handshake; `tokenizer` and `weights` are fingerprints.

    `corpus` gives that of a cloud's documents, and of all else that its part of a text depends on.
    """

    side: Side
    tokenizer: str
    vocabulary: int
    model: str
    weights: str
    corpus: Callable[[], str] = lambda: "unknown"

    def hello(self) -> Hello:
        """A Hello with a fresh nonce, for one connection."""
        return Hello(
            version=PROTOCOL_VERSION,
            nonce=os.urandom(NONCE_BYTES),
            role=self.side,
            tokenizer=self.tokenizer,
            vocabulary=self.vocabulary,
            model=self.model,
            software=f"dragonrt {__version__}",
            weights=self.weights,
            corpus=self.corpus(),
            clock_ms=time.time_ns() // 10**6,
        )


@dataclass(frozen=True, slots=True)
class Address:
    """Where the cloud listens, and how the connection is protected and emulated.

    `key` is the shared key; with it all that is said is encrypted. `emulate` wraps each stream in
    an emulated link, if one is asked for.
    """

    host: str
    port: int
    key: bytes | None = None
    tls: ssl.SSLContext | None = None
    emulate: Callable[[Stream], Stream] | None = None

    def around(self, stream: Stream, side: Side) -> Stream:
        """What the connection says its bytes to: emulated and encrypted, where that is asked."""
        link = self.emulate(stream) if self.emulate is not None else stream
        if self.key is None:
            return link
        return EncryptedStream(link, self.key, dials=side == "device")


def emulation(
    side: Side,
    link: str | None,
    latency: str | None,
    jitter: str | None,
    jitter_kind: JitterKind | None,
    bandwidth: str | None,
    seed: int,
) -> Callable[[Stream], Stream] | None:
    """The emulated link that the flags of those names ask for, or None.

    `link` names a profile; the others take the place of its values. Raises LinkError.
    """
    if (link, latency, jitter, bandwidth) == (None, None, None, None):
        return None
    profile = LinkProfile.load(link) if link is not None else LinkProfile()
    if latency is not None:
        profile = replace(profile, latency_s=parse_duration(latency))
    if jitter is not None:
        profile = replace(profile, jitter_s=parse_duration(jitter))
    if jitter_kind is not None:
        profile = replace(profile, jitter_kind=jitter_kind)
    if bandwidth is not None:
        bits = parse_bandwidth(bandwidth)
        profile = replace(profile, up=bits, down=bits, up_rates=None, down_rates=None)

    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, *profile.models(side, seed))

    return emulate


def _peer(
    stream: Stream,
    address: Address,
    identity: Identity,
    timeouts: Timeouts,
    recorder: Recorder,
    answerer: Answerer | None = None,
    first_session: int = 1,
) -> Peer:
    link = address.around(stream, identity.side)
    connection = Connection(identity.side, identity.hello(), address.key)
    return Peer(link, connection, recorder, answerer, timeouts, first_session)


def connector(
    address: Address,
    identity: Identity,
    timeouts: Timeouts,
    recorder: Recorder,
    first_session: int = 1,
    on_notice: Callable[[str], None] = log.info,
    who: str = "the cloud",
) -> Connector:
    """The device's connection to the cloud at `address`, not yet connected; see Connector."""

    async def dial() -> Peer:
        stream = await connect(address.host, address.port, tls=address.tls)
        return _peer(stream, address, identity, timeouts, recorder, first_session=first_session)

    return Connector(dial, timeouts, on_notice, who)


async def serve(
    address: Address,
    identity: Identity,
    preparer: Preparer,
    gatekeeper: Gatekeeper,
    on_change: Callable[[str], None] = log.info,
    lobby: Lobby | None = None,
) -> Server:
    """Listen as the cloud; `on_change` hears a line when a device comes, goes or is refused.

    It hears nothing of who leaves without a word, as balancers do that look whether it listens, and
    of one host few lines a second. Raises DragonError for an address beyond loopback without a key
    or certificates.
    """
    knows_devices = address.tls is not None and address.tls.verify_mode == ssl.CERT_REQUIRED
    if not (is_loopback(address.host) or address.key is not None or knows_devices):
        raise DragonError(
            f"listening on {address.host} lets anyone in: give both sides the same --key-file, "
            "or ask devices for certificates with --tls-cert, --tls-key and --tls-ca"
        )
    waiting = Lobby(preparer.timeouts.handshake_s) if lobby is None else lobby
    lines = BoundedLines(on_change, asyncio.get_running_loop().time)

    async def handle(stream: TcpStream) -> None:
        host = stream.peer_name.rpartition(":")[0]

        def heard() -> bool:
            return stream.bytes_received > 0

        def refuse(error: BusyError) -> None:
            # No key is agreed on yet: a device that has one takes the reason without it.
            carrier.write(encode_frame(encode(Goodbye(error.reason, error.text))))

        def dismiss() -> None:
            if not heard():
                refuse(NO_PLACE)  # who is about to speak hears why

        carrier = stream if address.tls is None else TlsStream(stream, address.tls)

        # Devices number their sessions alike: a cloud's events name the device too.
        recorder = preparer.recorder.of(stream.peer_name)
        peer = _peer(carrier, address, identity, preparer.timeouts, recorder, gatekeeper.answering)
        try:
            async with waiting.place(host, heard, dismiss):
                if isinstance(carrier, TlsStream):
                    await carrier.secure()
                gatekeeper.check_room()
                await peer.handshake()
        except BusyError as error:
            gatekeeper.sent_away += 1
            refuse(error)
            lines.say(host, f"refused {stream.peer_name}: {error}")
            return
        except (DragonError, MadeWayError) as error:
            # Not of who leaves without a word, as balancers do that look whether it listens.
            if heard() or isinstance(error, ConnectionLostError | TlsError | MadeWayError):
                lines.say(host, f"refused {stream.peer_name}: {error}")
            return
        try:
            with gatekeeper.inside(peer):
                lines.say(host, f"{stream.peer_name} connected")
                await peer.run()
        except BusyError as error:
            lines.say(host, f"refused {stream.peer_name}: {error}")
            await peer.refuse(error)
            return
        lines.say(host, f"{stream.peer_name} left: {peer.lost_reason or 'done'}")

    return await listen(address.host, address.port, handle)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
