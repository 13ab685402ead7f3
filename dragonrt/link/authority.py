"""A small authority and two certificates for TLS 1.3, and the last valid day of a certificate."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dragonrt.errors import LinkError
from dragonrt.link.shared_key import write_secret
from retrieval.files import make_directory, read_bytes

AUTHORITY = "authority.pem"

_Extension = tuple[x509.ExtensionType, bool]  # and whether it is critical


def _usage(*, signs: bool) -> list[_Extension]:
    """Return the extensions of a key that signs certificates, or authenticates a side."""
    usage = x509.KeyUsage(not signs, *(False,) * 4, signs, signs, False, False)
    return [(x509.BasicConstraints(signs, 0 if signs else None), True), (usage, True)]


def make_certificates(
    directory: Path, hosts: Sequence[str], now: datetime, days: int
) -> tuple[Path, ...]:
    """Write an authority's certificate, and one with its key for each side, into `directory`.

    The cloud's is valid for `hosts`, its names or addresses. The authority's key is not stored, so
    there can be no third certificate. Raises LinkError.
    """
    try:
        make_directory(directory)
    except OSError as error:
        raise LinkError(f"cannot make {directory}: {error.strerror}") from None
    files = (AUTHORITY, "cloud.pem", "cloud.key", "device.pem", "device.key")
    paths = [directory / name for name in files]
    for path in paths:
        if path.exists():
            raise LinkError(f"{path} exists and is left as it is: choose another directory")
    authority = ec.generate_private_key(ec.SECP256R1())
    last = datetime.combine(now.date() + timedelta(days=days), time.max, UTC)
    # Valid from the day before: the other side's clock may be behind.
    sign = partial(_signed, authority, now - timedelta(days=1), last)
    write_secret(paths[0], sign("authority", authority.public_key(), _usage(signs=True)))
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    usages = {"cloud": ExtendedKeyUsageOID.SERVER_AUTH, "device": ExtendedKeyUsageOID.CLIENT_AUTH}
    for side, usage in usages.items():
        key = ec.generate_private_key(ec.SECP256R1())
        proves = x509.ExtendedKeyUsage([usage])
        extensions = [*_usage(signs=False), (proves, False), (issuer, False)]
        if side == "cloud" and hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            extensions.append((names, False))
        write_secret(directory / f"{side}.pem", sign(side, key.public_key(), extensions))
        write_secret(directory / f"{side}.key", _key_pem(key))
    return tuple(paths)


def last_day(certificate: Path) -> date:
    """Return the last day on which all certificates of a PEM file are valid. Raises LinkError."""
    try:
        found = x509.load_pem_x509_certificates(read_bytes(certificate))
    except OSError as error:
        raise LinkError(f"cannot read the certificate {certificate}: {error.strerror}") from None
    except ValueError:
        raise LinkError(f"{certificate} is not a certificate: it must be a PEM file") from None
    return min(each.not_valid_after_utc for each in found).date()


def _signed(
    authority: ec.EllipticCurvePrivateKey,
    first: datetime,
    last: datetime,
    name: str,
    key: ec.EllipticCurvePublicKey,
    extensions: Sequence[_Extension],
) -> bytes:
    """Return a certificate in PEM."""
    issuer, subject = _name("authority"), _name(name)
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    builder = builder.not_valid_before(first).not_valid_after(last)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key)
    for extension, critical in ((identifier, False), *extensions):
        builder = builder.add_extension(extension, critical)
    return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(role: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dragonrt {role}")])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise LinkError(f"{host!r} is neither the name of a host nor an address") from None


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
