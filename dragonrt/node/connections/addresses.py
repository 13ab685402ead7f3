"""Turn the user's settings of network and encryption into addresses to dial or listen on."""

import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.encryption import EncryptedStream
from dragonrt.link.profile import LinkProfile, parse_duration
from dragonrt.link.shared_key import read_key, renewal
from dragonrt.link.stream import Stream, TcpStream, TlsError, connect, is_loopback
from dragonrt.link.tls import client_context, last_day, server_context
from dragonrt.modes import entry_of
from dragonrt.modes.settings import Settings
from dragonrt.settings import PathText, Port, Text, setting
from dragonrt.side import Side
from dragonrt.wire.connection import Connection
from dragonrt.wire.fields import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello

if TYPE_CHECKING:
    from dragonrt.backends.model import LanguageModel

SOON = timedelta(days=30)  # how long before its end a key or certificate is warned of


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a side is in the handshake: its role (device or cloud), and the model that it runs."""

    side: Side
    model: "LanguageModel"

    def hello(self) -> Hello:
        """Return the Hello message of one connection, with a fresh nonce."""
        return Hello(
            version=PROTOCOL_VERSION,
            nonce=os.urandom(NONCE_BYTES),
            role=self.side,
            tokenizer=self.model.tokenizer_fingerprint,
            vocabulary=self.model.vocabulary,
            model=self.model.name,
            software=f"dragonrt {__version__}",
            weights=self.model.fingerprint,
            clock_ms=time.time_ns() // 10**6,
        )


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a cloud; connections are encrypted with a shared `key`, or by `tls`.

    `emulate` wraps streams in an emulated slow link. `insecure` allows dialling without encryption.
    """

    host: str
    port: int
    key: bytes | None = None
    tls: ssl.SSLContext | None = None
    emulate: Callable[[Stream], Stream] | None = None
    insecure: bool = False

    @property
    def exposed(self) -> bool:
        """Whether the address is another machine's, and neither key nor TLS protects the link."""
        return not (is_loopback(self.host) or self.key is not None or self.tls is not None)

    def check(self) -> None:
        """Raise TlsError if the address is `exposed` and not allowed by the user (`insecure`)."""
        if self.exposed and not self.insecure:
            raise TlsError(
                f"anyone on the way to {self.host} could read and change what is sent: give both "
                "sides the same --key-file, or use TLS with --tls or --tls-ca (--insecure dials it)"
            )

    def check_listening(self) -> None:
        """Raise DragonError if a cloud at this address would accept any device that reaches it."""
        knows_devices = self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED
        if not (is_loopback(self.host) or self.key is not None or knows_devices):
            raise DragonError(
                f"listening on {self.host} lets anyone in: give both sides the same --key-file, "
                "or ask devices for certificates with --tls-cert, --tls-key and --tls-ca"
            )

    def around(self, stream: Stream, side: Side) -> Stream:
        """Wrap a stream that `side` uses in the emulated link and encryption of this address."""
        link = self.emulate(stream) if self.emulate is not None else stream
        key, dials = self.key, side == "device"
        return link if key is None else EncryptedStream(link, key, dials=dials)

    async def reach(self) -> TcpStream:
        """Connect by TCP, or TLS, as a device; return the stream for `begin`. Raises LinkError."""
        self.check()
        return await connect(self.host, self.port, tls=self.tls)

    def begin(self, stream: TcpStream, identity: Identity) -> tuple[Stream, Connection]:
        """Wrap a connected stream by `around`; return it with its new protocol Connection."""
        connection = Connection(identity.side, identity.hello(), self.key)
        return self.around(stream, identity.side), connection

    async def dial(self, identity: Identity) -> tuple[Stream, Connection]:
        """Connect as a device: `reach`, then `begin`. Raises LinkError."""
        return self.begin(await self.reach(), identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """The setting of an emulated slow link, which delays all that this side sends and receives."""

    link: PathText | None = setting(
        None, "Emulated link: a one-way delay (150ms), a name, or a TOML file. Default: none."
    )

    def emulate(self, side: Side) -> Callable[[Stream], Stream] | None:
        """Return a function that wraps streams of `side` in the emulated link; None if unset."""
        if self.link is None:
            return None
        if re.match(r"-?[\d.]+ *(us|ms|s|min)$", self.link):
            profile = LinkProfile(latency_s=parse_duration(self.link))
        else:
            profile = LinkProfile.load(self.link)
        return lambda stream: EmulatedStream(stream, *profile.models(side, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """The network settings of a side: the cloud's address, and the files for encryption."""

    host: Text = setting("127.0.0.1", "Address of the cloud: HOST or HOST:PORT.", daily=True)
    port: Port = setting(7070, "TCP port of the cloud.", letter="p", daily=True)
    key_file: Path | None = setting(None, "File of the shared key, for encryption.", daily=True)
    tls: bool = setting(False, "Connect with TLS and trust the system's authorities.")
    tls_cert: Path | None = setting(None, "This side's certificate, a PEM file.")
    tls_key: Path | None = setting(None, "Private key of --tls-cert, a PEM file.")
    tls_ca: Path | None = setting(None, "Authority of the other side's certificate, a PEM file.")
    insecure: bool = setting(
        False, "Dial another machine without encryption. Others can read and change the traffic."
    )

    def cloud_address(self, link: LinkSettings) -> Address:
        """Return the Address that a cloud listens on. Raises DragonError for a wrong setting."""
        context = None
        if self.tls_cert is not None or self.tls_key is not None:
            context = server_context(self.tls_cert, self.tls_key, self.tls_ca)
        elif self.tls_ca is not None:
            raise DragonError("--tls-ca needs a certificate of this side: give --tls-cert, too")
        return self._address("cloud", link, context)

    def device_address(self, link: LinkSettings) -> Address:
        """Return the Address that a device dials. `tls` or any certificate file turns TLS on."""
        files = (self.tls_cert, self.tls_key, self.tls_ca)
        context = None
        if self.tls or any(path is not None for path in files):
            context = client_context(self.tls_ca, self.tls_cert, self.tls_key)
        return self._address("device", link, context)

    def expiring(self, today: date) -> list[str]:
        """Return a line to show per key or certificate that expires within 30 days of `today`."""
        lines = []
        renew = renewal(read_key(self.key_file)) if self.key_file is not None else None
        if renew is not None and renew - today <= SOON:
            lines.append(f"{self.key_file}: renew this key before {renew}: `dragonrt keys new`")
        for path in (self.tls_cert, self.tls_ca):
            if path is not None and (last := last_day(path)) - today <= SOON:
                lines.append(f"{path}: this certificate ends on {last}: make another one")
        return lines

    def _address(self, side: Side, link: LinkSettings, context: ssl.SSLContext | None) -> Address:
        _no_url(self.host)
        # An IPv6 address without brackets is all host.
        host, port = host_and_port(self.host) or (self.host.strip("[]"), self.port)
        if not host:
            raise DragonError(f"{self.host!r} is no host: write HOST or HOST:PORT")
        key = read_key(self.key_file) if self.key_file is not None else None
        return Address(host, port, key, context, link.emulate(side), self.insecure)


@dataclass(frozen=True, slots=True)
class Member:
    """A side that a device dials, and its `weight` in the mixture, relative to the others'."""

    name: str
    address: Address
    weight: float = 1.0


def members(
    how: Settings, network: NetworkSettings, link: LinkSettings, workers: Sequence[str]
) -> tuple[Member, ...]:
    """Return the sides that a device in mode `how` dials: the cloud or, in `federated`, `workers`.

    Each worker is HOST:PORT or HOST:PORT=WEIGHT. All share key, certificates and emulated link.
    Raises DragonError if workers do not fit the mode, or an address may not be dialled unprotected.
    """
    entry, address = entry_of(how), network.device_address(link)
    if not entry.several:
        if workers:
            raise DragonError(f"--worker is not for --mode {entry.name}: leave it out")
        address.check()
        return (Member("cloud", address),)
    usual = NetworkSettings()
    if (network.host, network.port) != (usual.host, usual.port):
        raise DragonError("--host and --port name one cloud: name each worker with --worker")
    if not workers:
        raise DragonError(f"--mode {entry.name} needs workers: name each one with --worker")
    named = [_worker(address, text) for text in workers]
    weighted = ["=" in text for text in workers]
    if any(weighted) and (by := how.weighing_option):
        raise DragonError(f"{by} weighs the workers: name each --worker without =X")
    if any(weighted) and not all(weighted):
        raise DragonError("some workers have no weight: give every --worker a weight, or none")
    if len({each.name for each in named}) < len(named):
        raise DragonError("a worker is named twice: name each --worker once")
    for each in named:
        each.address.check()
    return tuple(named)


def _no_url(text: str) -> None:
    """Raise DragonError for a URL, with the host that it names."""
    _, is_url, rest = text.partition("://")
    if is_url:
        place = rest.partition("/")[0].rpartition("@")[2] or "host"
        raise DragonError(f"{text!r} is no host: write HOST or HOST:PORT, such as {place}")


def _worker(address: Address, text: str) -> Member:
    _no_url(text)
    place, equals, share = text.partition("=")
    found = host_and_port(place)
    try:
        weight = float(share) if equals else 1.0
    except ValueError:
        found = None
    if found is None:
        raise DragonError(f"{text!r} is no worker: write HOST:PORT or HOST:PORT=WEIGHT")
    if not 0 < weight < float("inf"):
        raise DragonError(f"the weight of {place} must be above 0")
    host, port = found
    return Member(f"{host}:{port}", replace(address, host=host, port=port), weight)


def host_and_port(text: str) -> tuple[str, int] | None:
    """Parse HOST:PORT into host and port; None if malformed. An IPv6 host has brackets."""
    found = re.fullmatch(r"(?:\[(.+)\]|([^:]+)):([0-9]{1,5})", text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        return None
    return found[1] or found[2], int(found[3])
