"""TLS 1.3: contexts from certificate files, a certificate's last day, TLS over any stream."""

import ssl
from contextlib import suppress
from datetime import date
from pathlib import Path

from cryptography import x509
from typing_extensions import override

from dragonrt.errors import LinkError
from dragonrt.link.stream import Layer, Stream, TlsError, reason_of
from retrieval.files import read_bytes

_LARGEST = 2**24  # bytes of a bundle of authorities
_MOST = 64 * 1024  # bytes that one `receive` returns


def server_context(
    certificate: Path | None, private_key: Path | None, authority: Path | None = None
) -> ssl.SSLContext:
    """Return a listener's TLS context. Raises LinkError for missing or unusable PEM files.

    With an `authority`, clients must show a certificate that it signed. Only this may be None.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_certificate(context, certificate, private_key)
    if authority is not None:
        _load_authority(context, authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    authority: Path | None = None, certificate: Path | None = None, private_key: Path | None = None
) -> ssl.SSLContext:
    """Return a TLS context for the side that connects. Raises LinkError for unusable PEM files.

    It trusts `authority`, or the system's authorities if None. A `certificate` to show the server
    is needed only if the server asks for one, and comes with its `private_key`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if authority is None:
        context.load_default_certs()
    else:
        _load_authority(context, authority)
    if certificate is not None or private_key is not None:
        _load_certificate(context, certificate, private_key)
    return context


def _load_certificate(
    context: ssl.SSLContext, certificate: Path | None, private_key: Path | None
) -> None:
    if certificate is None or private_key is None:
        raise LinkError("a certificate needs its private key: give both --tls-cert and --tls-key")
    try:
        for path in (certificate, private_key):  # a pipe would be waited for
            read_bytes(path)
        # An encrypted key would prompt for its passphrase; the empty one fails instead.
        context.load_cert_chain(certificate, private_key, password="")
    except (OSError, ValueError) as error:
        raise LinkError(
            f"cannot use the certificate {certificate} with the key {private_key}: "
            f"{reason_of(error)}; both must be PEM files that belong together"
        ) from None


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        read_bytes(authority, _LARGEST)
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise LinkError(
            f"cannot use the authority {authority}: {reason_of(error)}; it must be a PEM file"
        ) from None


def last_day(certificate: Path) -> date:
    """Return the last day on which all certificates of a PEM file are valid. Raises LinkError."""
    try:
        found = x509.load_pem_x509_certificates(read_bytes(certificate))
    except OSError as error:
        raise LinkError(f"cannot read the certificate {certificate}: {error.strerror}") from None
    except ValueError:
        raise LinkError(f"{certificate} is not a certificate: it must be a PEM file") from None
    return min(each.not_valid_after_utc for each in found).date()


class TlsStream(Layer):
    """A Stream in TLS over `stream`, for the listening side; writes wait until `secure` has ended.

    Unlike with asyncio's TLS, the caller can count and limit connections during the handshake.
    """

    def __init__(self, stream: Stream, context: ssl.SSLContext) -> None:
        super().__init__(stream)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._waiting: bytearray | None = bytearray()
        self._over = False

    async def secure(self) -> None:
        """Do the TLS handshake, once. Raises TlsError if it fails, LinkError if the stream ends."""
        while self._waiting is not None:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not await self._more():
                    left = f"{self.peer_name} closed the connection before TLS was agreed on"
                    raise LinkError(left) from None
                continue
            except ssl.SSLError as error:
                self._flush()  # sends the alert
                raise TlsError(f"TLS with {self.peer_name} failed: {reason_of(error)}") from None
            waiting, self._waiting = self._waiting, None
            self.write(bytes(waiting))

    @override
    async def receive(self) -> bytes:
        await self.secure()
        while not self._over:
            try:
                data = self._tls.read(_MOST)
                if not data:
                    self.close()  # as TCP does where the other end has closed
                return data
            except ssl.SSLWantReadError:
                if not await self._more():
                    return b""
            except ssl.SSLError as error:
                broke = f"the connection to {self.peer_name} broke: {reason_of(error)}"
                raise LinkError(broke) from None
        return b""

    async def _more(self) -> bool:
        """Feed TLS the next bytes; False at the end."""
        self._flush()
        data = await self._stream.receive()
        self._incoming.write(data)
        return bool(data)

    @override
    def write(self, data: bytes) -> None:
        if self._waiting is not None:
            self._waiting += data
            return
        with suppress(ssl.SSLError):  # after the end it is dropped
            if data:
                self._tls.write(data)
        self._flush()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._stream.write(data)

    @override
    def close(self) -> None:
        self._over = True
        if self._waiting is None:
            with suppress(ssl.SSLError):
                self._tls.unwrap()  # sends close_notify without waiting for the answer
            self._flush()
        super().close()
