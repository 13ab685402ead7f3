"""Where the other sides are: workers, one cloud, an emulated link."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from dragonrt.errors import DragonError
from dragonrt.link.stream import TlsError
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.node.answers.server_session import admission
from dragonrt.node.connections.addresses import (
    Address,
    LinkSettings,
    Member,
    NetworkSettings,
    host_and_port,
    members,
)
from dragonrt.node.connections.admission import USUAL_LIMITS, serve
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script


def test_workers_are_as_protected_as_one_cloud_is(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 16)
    network = NetworkSettings(key_file=tmp_path / "key")
    places = ["a.example:7071=0.7", "[::1]:7072=2"]
    first, second = members(FederatedSettings(), network, LinkSettings(), places)
    assert (first.name, first.weight, first.address.key) == ("a.example:7071", 0.7, b"k" * 16)
    assert (second.address.host, second.address.port, second.weight) == ("::1", 7072, 2.0)


def test_without_weights_all_are_equal() -> None:
    how = FederatedSettings(weights="relevance")
    found = members(how, NetworkSettings(), LinkSettings(), ["[::1]:1", "localhost:2"])
    assert [each.weight for each in found] == [1.0, 1.0]


def test_the_other_modes_have_one_cloud() -> None:
    (cloud,) = members(DragonSettings(), NetworkSettings(port=9), LinkSettings(), [])
    assert cloud == Member("cloud", NetworkSettings(port=9).device_address(LinkSettings()))
    with pytest.raises(DragonError, match="leave it out"):
        members(DragonSettings(), NetworkSettings(), LinkSettings(), ["a:1"])


async def test_no_device_dials_another_machine_unprotected() -> None:
    network, link, far = NetworkSettings(), LinkSettings(), "192.0.2.1:7070"
    workers = ["127.0.0.1:1", far]
    with pytest.raises(TlsError):
        members(DragonSettings(), NetworkSettings(host="192.0.2.1"), link, [])
    with pytest.raises(TlsError):
        members(DragonSettings(), NetworkSettings(host=far), link, [])
    with pytest.raises(TlsError):
        members(FederatedSettings(), network, link, workers)
    nobody: Any = None
    with pytest.raises(TlsError):
        await Address("192.0.2.1", 7070).dial(nobody)
    members(DragonSettings(), NetworkSettings(host=far, insecure=True), link, [])
    members(DragonSettings(), NetworkSettings(host=far, tls=True), link, [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.example:7070", ("a.example", 7070)),
        ("[::1]:1", ("::1", 1)),
        *((text, None) for text in ("", "a", "a:", ":7070", "a:0", "a:65536", "::1:7070", "a:٣")),
    ],
)
def test_a_place_is_a_host_and_a_port(text: str, found: tuple[str, int] | None) -> None:
    assert host_and_port(text) == found


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a.example", ("a.example", 9)),
        ("a.example:7071", ("a.example", 7071)),
        ("::1", ("::1", 9)),
        ("[::1]", ("::1", 9)),
        ("[::1]:7071", ("::1", 7071)),
    ],
)
def test_the_address_of_a_cloud_may_have_its_port(text: str, place: tuple[str, int]) -> None:
    found = NetworkSettings(host=text, port=9).device_address(LinkSettings())
    assert (found.host, found.port) == place


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://server.example/", "server.example"),
        ("http://server:7070/v1", "server:7070"),
        ("tcp://me@[::1]:1", "[::1]:1"),
    ],
)
def test_the_address_of_a_page_is_no_host(url: str, host: str) -> None:
    network, link = NetworkSettings(), LinkSettings()
    for refused in (
        lambda: members(DragonSettings(), NetworkSettings(host=url), link, []),
        lambda: members(FederatedSettings(), network, link, [url]),
        lambda: NetworkSettings(host=url).cloud_address(link),
    ):
        with pytest.raises(DragonError) as error:
            refused()
        assert str(error.value).endswith(f" {host}")


@pytest.mark.parametrize("link", ["50ms", "lte"])
def test_a_link_is_a_latency_or_the_name_of_a_profile(link: str) -> None:
    assert LinkSettings(link=link).emulate("device") is not None
    assert LinkSettings().emulate("device") is None


@pytest.mark.parametrize("tls", [False, True])
async def test_a_cloud_without_keys_listens_on_loopback_only(tls: bool) -> None:
    """TLS alone proves the cloud: without an authority it lets every device in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if tls else None
    side = SimulatedSide("cloud", lambda _: Script(0))
    identity: Any = None  # nothing is said
    where = Address("0.0.0.0", 0, tls=context)
    with pytest.raises(DragonError):
        await serve(where, identity, admission(side, USUAL_LIMITS), side.recorder)
