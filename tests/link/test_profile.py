"""Profiles of links: those that are shipped, their units, and what is wrong with others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.errors import DragonError, LinkError
from dragonrt.link.models import DeliveryTrace, MarkovRates, RttSeries
from dragonrt.link.profile import LinkProfile, parse_bandwidth, parse_duration, parse_size

MARKOV = ["lora-markov", "lte-markov", "nb-iot-markov"]
FIXED = ["3g", "home", "intercontinental", "lan", "lora", "lte", "nb-iot", "satellite", "wifi"]
SHIPPED = sorted(MARKOV + FIXED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_bundled_link_loads_and_names_its_source(name: str) -> None:
    profile = LinkProfile.load(name)
    assert profile.latency_s > 0
    assert (profile.up_rates if name in MARKOV else profile.up) is not None
    assert profile.down is not None
    assert bundled.link_path(name).read_text().startswith("# ")


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


def test_a_file_with_markov_rates(tmp_path: Path) -> None:
    path = tmp_path / "fading.toml"
    path.write_text(
        'up_low = "20kbit"\nup_high = "1mbit"\nup_to_low = 0.1\nup_to_high = 0.25\n'
        'slot = "50ms"\ndown = "1mbit"\n'
    )
    rates = MarkovRates(20e3, 1e6, 0.1, 0.25, 0.05)
    profile = LinkProfile.load(str(path))
    assert profile == LinkProfile(down=1e6, up_rates=rates)
    outgoing, incoming = profile.models("device", seed=3)
    assert {outgoing.rate_at(n / 20) for n in range(300)} == {20e3, 1e6}
    assert incoming.rate_at(5.0) == 1e6


def test_a_file_in_profiles_is_found_by_name_and_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").mkdir()
    for name in ("attic", "home"):
        (tmp_path / "profiles" / f"{name}.toml").write_text('latency = "250ms"')
        assert LinkProfile.load(name) == LinkProfile(latency_s=0.25)
    with pytest.raises(LinkError) as error:
        LinkProfile.load("cellar")
    assert "3g, attic, home, intercontinental" in str(error.value)


def test_the_example_that_people_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    profile = LinkProfile.load("train")
    assert profile.up_rates is not None
    assert profile.down_rates is not None
    assert profile.rtt_trace is not None


@pytest.mark.parametrize(
    "text",
    [
        'up_low = "1kbit"\nup_high = "2kbit"',
        'slot = "1s"',
        'up_to_low = "0.1"',
        'down_low = "1kbit"\ndown_high = "2kbit"\ndown_to_low = 2\ndown_to_high = 0.1',
        'latencyy = "1ms"',
        "latency = 20",
        'latency = "20"',
        'up = "fast"',
        'up = "0mbit"',
        'jitter_kind = "gamma"',
        'up_trace = "missing"',
        'up_trace = "bad.toml"',
        'rtt_trace = "missing"',
        'rtt_trace = "bad.toml"',
        "latency =",
    ],
)
def test_what_is_wrong_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(LinkError) as caught:
        LinkProfile.load(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        *((parse_duration, *each) for each in (("150ms", 0.15), ("1.5 s", 1.5), ("2MIN", 120.0))),
        *((parse_duration, *each) for each in (("200us", 0.0002), ("0s", 0.0))),
        *((parse_bandwidth, *each) for each in (("1mbit", 1e6), ("5.5kbit", 5500.0))),
        *((parse_bandwidth, *each) for each in (("10 Gbit", 1e10), ("9bit", 9.0))),
        *((parse_size, *each) for each in (("20GB", 20e9), ("1.5 mb", 1.5e6), ("0", 0), ("7B", 7))),
        *((parse_size, *each) for each in (("1e3k", 1e6), ("2TB", 2e12))),
    ],
)
def test_quantities(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)


WRONG: dict[Callable[[str], float], list[str]] = {
    parse_duration: ["", "ms", "1", "-1ms", "1e3ms", "1 m s", "1h", "nan s", "1mbit"],
    parse_bandwidth: ["", "1", "1mb", "1ms", "-1mbit", "infbit"],
    parse_size: ["", "GB", "-1GB", "1..2GB", "20 GiB", "nan", "1e999"],
}


@pytest.mark.parametrize("parse", WRONG)
def test_wrong_quantities(parse: Callable[[str], float]) -> None:
    for text in WRONG[parse]:
        with pytest.raises(DragonError):
            parse(text)
