"""A small authority and two certificates for TLS 1.3, and until when a certificate is good."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dragonrt.errors import LinkError
from dragonrt.link.shared_key import write_secret
from retrieval.files import make_directory, read_bytes

AUTHORITY = "authority.pem"


def make_certificates(
    directory: Path, hosts: Sequence[str], now: datetime, days: int
) -> tuple[Path, ...]:
    """Write an authority's certificate, and one with its key for each side, into `directory`.

    The cloud's is good for `hosts`, names or addresses by which devices find it. The authority's
    own key is not kept: nobody can make a third certificate. Raises LinkError.
    """
    try:
        make_directory(directory)
    except OSError as error:
        raise LinkError(f"cannot make {directory}: {error.strerror}") from None
    paths = [directory / name for name in (AUTHORITY, *_files("cloud"), *_files("device"))]
    for path in paths:
        if path.exists():
            raise LinkError(f"{path} exists and is left as it is: choose another directory")
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _Authority(_name("dragonrt authority"), authority_key, now, days)
    write_secret(paths[0], _pem(authority.certify_itself()))
    for name, usage in (
        ("cloud", ExtendedKeyUsageOID.SERVER_AUTH),
        ("device", ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = authority.certify(name, key, usage, hosts if name == "cloud" else ())
        for file, content in zip(_files(name), (_pem(certificate), _key_pem(key)), strict=True):
            write_secret(directory / file, content)
    return tuple(paths)


def last_day(certificate: Path) -> date:
    """The last day on which every certificate of a PEM file is good. Raises LinkError."""
    try:
        found = x509.load_pem_x509_certificates(read_bytes(certificate))
    except OSError as error:
        raise LinkError(f"cannot read the certificate {certificate}: {error.strerror}") from None
    except ValueError:
        raise LinkError(f"{certificate} is not a certificate: it must be a PEM file") from None
    return min(each.not_valid_after_utc for each in found).date()


def _files(side: str) -> tuple[str, str]:
    return f"{side}.pem", f"{side}.key"


class _Authority:
    """What an authority signs."""

    def __init__(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
    ) -> None:
        self._name, self._key = name, key
        # From the day before: the other machine's clock may be behind.
        self._first = now - timedelta(days=1)
        self._last = datetime.combine(now.date() + timedelta(days=days), time.max, UTC)

    def certify_itself(self) -> x509.Certificate:
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
        return self._sign(builder.add_extension(_usage(signs=True), critical=True))

    def certify(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        usage: x509.ObjectIdentifier,
        hosts: Sequence[str],
    ) -> x509.Certificate:
        builder = self._builder(_name(f"dragonrt {name}"), key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return self._sign(builder)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(self._first).not_valid_after(self._last)
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)

    def _sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise LinkError(f"{host!r} is neither the name of a host nor an address") from None


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
