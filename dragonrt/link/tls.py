"""TLS contexts from certificate files, with errors that name the file."""

import ssl
from pathlib import Path

from dragonrt.errors import LinkError
from dragonrt.link.stream import reason_of
from retrieval.files import read_bytes

_LARGEST = 2**24  # bytes of a bundle of authorities


def server_context(
    certificate: Path, private_key: Path, authority: Path | None = None
) -> ssl.SSLContext:
    """Return the listening side's context; clients of an `authority` must show a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_certificate(context, certificate, private_key)
    if authority is not None:
        _load_authority(context, authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    authority: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
) -> ssl.SSLContext:
    """Return the connecting side's context; it trusts `authority`, or the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if authority is None:
        context.load_default_certs()
    else:
        _load_authority(context, authority)
    if (certificate is None) != (private_key is None):
        raise LinkError("a certificate needs its private key: give both --tls-cert and --tls-key")
    if certificate is not None and private_key is not None:
        _load_certificate(context, certificate, private_key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, private_key: Path) -> None:
    try:
        for path in (certificate, private_key):  # a pipe would be waited for
            read_bytes(path)
        # A key behind a passphrase would stop a server to ask for it; an empty one fails instead.
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
