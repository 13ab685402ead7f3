"""A cloud with a shared key and TLS: who has both is served, others are told what is wrong."""

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragonrt.errors import DragonError, LinkError
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.link.tls import client_context
from dragonrt.wire.reasons import HandshakeError

from .conftest import DeviceAt, counts

KEY, WRONG_KEY = b"0123456789abcdef0123456789abcdef", b"another key of thirty-two bytes!"


@dataclass(frozen=True)
class Papers:
    """Files of an authority, of a server certificate for 127.0.0.1, and of two keys."""

    authority: Path
    certificate: Path
    private_key: Path
    key: Path
    wrong_key: Path


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    place = tmp_path_factory.mktemp("papers")

    def openssl(*arguments: str) -> None:
        try:
            subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl is not installed")

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        *("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"),
        *("-subj", "/CN=our own authority"),
    )
    openssl("req", *curve, "-keyout", "cloud.key", "-out", "cloud.csr", "-subj", "/CN=cloud")
    (place / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        *("x509", "-req", "-in", "cloud.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
        *("-CAcreateserial", "-out", "cloud.pem", "-days", "2", "-extfile", "names"),
    )
    (place / "key").write_bytes(KEY + b"\n")
    (place / "wrong").write_bytes(WRONG_KEY)
    return Papers(*(place / name for name in ("ca.pem", "cloud.pem", "cloud.key", "key", "wrong")))


@pytest.fixture(scope="module")
def guarded(cloud: CloudProcess, cloud_index: Path, papers: Papers) -> Iterator[CloudProcess]:
    """A cloud that wants the key and speaks TLS; its index is the other one's."""
    cloud.wait_ready()
    options = ("--index", str(cloud_index), "--key-file", str(papers.key))
    tls = ("--tls-cert", str(papers.certificate), "--tls-key", str(papers.private_key))
    with cloud_process(*options, *tls) as process:
        process.wait_ready()
        yield process


@pytest.mark.slow
async def test_the_right_key_over_tls_is_served(
    guarded: CloudProcess, papers: Papers, device_at: DeviceAt
) -> None:
    tls = client_context(papers.authority)
    async with device_at(guarded.wait_ready(), key=KEY, tls=tls) as device:
        reply = await device.ask("What is needed to make lemon cake?")
    assert "three lemons" in reply.text
    assert counts(reply).alone_from is None


@pytest.mark.slow
@pytest.mark.parametrize("key", [WRONG_KEY, None])
async def test_a_wrong_key_is_refused_on_both_sides(
    guarded: CloudProcess, papers: Papers, device_at: DeviceAt, key: bytes | None
) -> None:
    with pytest.raises(HandshakeError, match="shared key does not match"):
        async with device_at(guarded.wait_ready(), key=key, tls=client_context(papers.authority)):
            pass
    assert any("refused" in line and "shared key" in line for line in guarded.lines)


@pytest.mark.slow
async def test_tls_has_to_be_on_at_both_ends_and_trusted(
    guarded: CloudProcess, cloud: CloudProcess, papers: Papers, device_at: DeviceAt
) -> None:
    trusting: ssl.SSLContext = client_context(papers.authority)
    with pytest.raises(DragonError, match="is TLS on at both ends"):
        async with device_at(guarded.wait_ready(), key=KEY):
            pass
    with pytest.raises(LinkError, match="TLS"):
        async with device_at(cloud.wait_ready(), tls=trusting):
            pass
    with pytest.raises(LinkError, match="--tls-ca"):
        async with device_at(guarded.wait_ready(), key=KEY, tls=client_context()):
            pass


@pytest.mark.slow
def test_the_command_line_says_it_in_one_line(guarded: CloudProcess, papers: Papers) -> None:
    command = [sys.executable, "-m", "dragonrt", "--config", os.devnull, "device"]
    command += ["--port", str(guarded.wait_ready()), "--tls-ca", str(papers.authority)]
    command += ["--key-file", str(papers.wrong_key), "--ask", "Who?"]
    environment = os.environ | {"COLUMNS": "1000", "TERM": "dumb"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("dragonrt: shared key does not match")
