"""Profiles of links: those that are shipped, their units, and what is wrong with others."""

from pathlib import Path

import pytest

from dragonrt.link.errors import LinkError
from dragonrt.link.models import DeliveryTrace, RttSeries
from dragonrt.link.profile import PROFILES, LinkProfile
from dragonrt.link.units import parse_bandwidth, parse_duration

SHIPPED = ["3g", "home", "intercontinental", "lan", "lora", "lte", "nb-iot", "satellite", "wifi"]


def test_these_are_shipped() -> None:
    assert sorted(path.stem for path in PROFILES.glob("*.toml")) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_loads_and_says_where_its_numbers_come_from(name: str) -> None:
    profile = LinkProfile.load(name)
    assert profile.latency_s > 0
    assert profile.up is not None
    assert profile.up > 0
    assert (PROFILES / f"{name}.toml").read_text().startswith("# ")


def test_home() -> None:
    assert LinkProfile.load("home") == LinkProfile(
        latency_s=0.02, jitter_s=0.004, up=20e6, down=100e6
    )


def test_up_is_from_the_device_to_the_cloud() -> None:
    profile = LinkProfile(up=8000.0, down=80_000.0)
    for side, sending_s, receiving_s in (("device", 1.0, 0.1), ("cloud", 0.1, 1.0)):
        outgoing, incoming = profile.models("device" if side == "device" else "cloud")
        assert outgoing.arrivals(0.0, 1000)[-1][0] == pytest.approx(sending_s)
        assert incoming.arrivals(0.0, 1000)[-1][0] == pytest.approx(receiving_s)


def test_a_file_with_traces(tmp_path: Path) -> None:
    (tmp_path / "up.trace").write_text("1\n2\n10\n")
    (tmp_path / "rtt.csv").write_text("time_s,rtt_ms\n0,100\n5,300\n")
    path = tmp_path / "recorded.toml"
    path.write_text('up_trace = "up.trace"\nrtt_trace = "rtt.csv"\njitter_kind = "normal"\n')
    assert LinkProfile.load(str(path)) == LinkProfile(
        jitter_kind="normal",
        up_trace=DeliveryTrace((1, 2, 10)),
        rtt_trace=RttSeries((0.0, 5.0), (0.1, 0.3)),
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('latencyy = "1ms"', "unknown key 'latencyy'"),
        ("latency = 20", 'latency must be text, such as latency = "20ms"'),
        ('latency = "20"', "'20' is not a duration"),
        ('up = "fast"', "'fast' is not a bandwidth"),
        ('up = "0mbit"', "a bandwidth must be above 0"),
        ('jitter_kind = "gamma"', "unknown kind of jitter 'gamma'"),
        ('up_trace = "missing"', "cannot use the delivery trace"),
        ('up_trace = "bad.toml"', "cannot use the delivery trace"),
        ('rtt_trace = "missing"', "cannot use the RTT series"),
        ('rtt_trace = "bad.toml"', "cannot use the RTT series"),
        ("latency =", "cannot read the link profile"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(LinkError) as caught:
        LinkProfile.load(str(path))
    assert line in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(LinkError, match=r"choose one of 3g, home, .*, wifi, or give the path"):
        LinkProfile.load("5g")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("150ms", 0.15), ("1.5 s", 1.5), ("200us", 0.0002), ("2MIN", 120.0), ("0s", 0.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "bits"), [("1mbit", 1e6), ("5.5kbit", 5500.0), ("10 Gbit", 1e10), ("9bit", 9.0)]
)
def test_bandwidths(text: str, bits: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(bits)


@pytest.mark.parametrize("text", ["", "ms", "1", "-1ms", "1e3ms", "1 m s", "1h", "nan s", "1mbit"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(LinkError, match="is not a duration: write a number and one of us, ms, s"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "1", "1mb", "1ms", "-1mbit", "infbit"])
def test_wrong_bandwidths(text: str) -> None:
    with pytest.raises(LinkError, match="is not a bandwidth: write a number and one of bit, kbit"):
        parse_bandwidth(text)
