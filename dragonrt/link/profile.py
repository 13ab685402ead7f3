"""Named links: TOML files that describe a link, the delay models made of them, and their units.

Durations, bit rates and sizes are written as people do: `150ms`, `1mbit`, `20GB`.
"""

import csv
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, cast

from dragonrt import bundled
from dragonrt.errors import DragonError, LinkError
from dragonrt.link.models import (
    DeliveryTrace,
    Direction,
    Jitter,
    JitterKind,
    LinkModel,
    MarkovRates,
    RttSeries,
)
from retrieval.files import read_text

_DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_BANDWIDTHS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def parse_duration(text: str) -> float:
    """Parse a duration, such as 150ms, into seconds. Units: us, ms, s, min. Raises LinkError."""
    return _parse(text, _DURATIONS, "a duration", "150ms or 1.5s")


def parse_bandwidth(text: str) -> float:
    """Parse a rate, such as 10kbit, 10mbit or 1gbit, into bit/s. Raises LinkError, also for 0."""
    bandwidth = _parse(text, _BANDWIDTHS, "a bandwidth", "250kbit or 10mbit")
    if bandwidth == 0:
        raise LinkError(f"a bandwidth must be above 0, not {text!r}")
    return bandwidth


def parse_size(text: str) -> int:
    """Parse a size, such as 500, 4 kB or 20GB, into bytes; k is 1000. Raises DragonError."""
    found = re.fullmatch(r"([\d.]+(?:e\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    try:
        return int(float(found[1]) * 1000 ** " kmgt".index(found[2] or " ")) if found else int(text)
    except (ValueError, OverflowError):
        raise DragonError(f"{text!r} is no size: write it as 500MB or 20GB") from None


def _parse(text: str, units: dict[str, float], kind: str, example: str) -> float:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?) ?([a-z]+)", text.strip().lower())
    if match is None or match[2] not in units:
        names = ", ".join(units)
        raise LinkError(
            f"{text!r} is not {kind}: write a number and one of {names}, such as {example}"
        )
    return float(match[1]) * units[match[2]]


_LARGEST = 2**26  # bytes of a trace
OWN_PROFILES = Path("profiles")  # the user's own, below the working directory


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The description of a link in both directions. `up` is from the device to the cloud.

    `latency_s` is one-way. `up` and `down` are in bit/s, None for no limit. Markov rates, or else a
    delivery trace, replace the bandwidth of a direction. An RTT series replaces the latency.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    jitter_kind: JitterKind = "uniform"
    period_s: float = 10.0
    up: float | None = None
    down: float | None = None
    up_rates: MarkovRates | None = None
    down_rates: MarkovRates | None = None
    up_trace: DeliveryTrace | None = None
    down_trace: DeliveryTrace | None = None
    rtt_trace: RttSeries | None = None

    @classmethod
    def load(cls, name: str) -> Self:
        """Load the link profile `name`, or the TOML file at that path. Raises LinkError.

        Profiles in ./profiles hide bundled ones. Paths in a file are relative to the file's folder.
        """
        own = OWN_PROFILES / f"{name}.toml"
        path = own if own.is_file() else bundled.link_path(name)
        if name.endswith(".toml") or "/" in name or "\\" in name:
            path = Path(name)
        try:
            table = tomllib.loads(read_text(path))
        except FileNotFoundError:
            named = {*bundled.links(), *(file.stem for file in OWN_PROFILES.glob("*.toml"))}
            names = ", ".join(sorted(named))
            raise LinkError(
                f"there is no link profile {name!r}: choose one of {names}, or give the path of "
                "a .toml file"
            ) from None
        except (OSError, ValueError) as error:
            raise LinkError(f"cannot read the link profile {path}: {error}") from None
        try:
            return cls(**_arguments(table, path.parent))
        except LinkError as error:
            raise LinkError(f"in the link profile {path}: {error}") from None

    def models(
        self, side: Literal["device", "cloud"], seed: int = 0
    ) -> tuple[LinkModel, LinkModel]:
        """Return a side's (outgoing, incoming) delay models; `seed` draws jitter, Markov rates."""

        def model(direction: Direction) -> LinkModel:
            return LinkModel(
                latency_s=self.latency_s,
                jitter=Jitter(self.jitter_kind, self.jitter_s, self.period_s),
                bandwidth=getattr(self, direction),
                rates=getattr(self, f"{direction}_rates"),
                deliveries=getattr(self, f"{direction}_trace"),
                rtts=self.rtt_trace,
                seed=seed,
                direction=direction,
            )

        return (model("up"), model("down")) if side == "device" else (model("down"), model("up"))


def _delivery_trace(path: Path) -> DeliveryTrace:
    """Read a Mahimahi file: one line per opportunity, the time in whole milliseconds."""
    return DeliveryTrace(tuple(int(line) for line in read_text(path, _LARGEST).split()))


def _rtt_series(path: Path) -> RttSeries:
    """Read a CSV file with the columns time_s and rtt_ms."""
    rows = list(csv.DictReader(read_text(path, _LARGEST).splitlines()))
    times_s = tuple(float(row["time_s"]) for row in rows)
    return RttSeries(times_s, tuple(float(row["rtt_ms"]) / 1000 for row in rows))


_FIELDS: dict[str, tuple[str, Callable[[str], object]]] = {  # of keys that need no other key
    "latency": ("latency_s", parse_duration),
    "jitter": ("jitter_s", parse_duration),
    "jitter_kind": ("jitter_kind", lambda text: Jitter(cast(JitterKind, text)).kind),
    "period": ("period_s", parse_duration),
    "up": ("up", parse_bandwidth),
    "down": ("down", parse_bandwidth),
}
_TRACES: dict[str, Callable[[Path], object]] = {
    "up_trace": _delivery_trace,
    "down_trace": _delivery_trace,
    "rtt_trace": _rtt_series,
}
_MARKOV = {
    direction: [f"{direction}_{key}" for key in ("low", "high", "to_low", "to_high")]
    for direction in ("up", "down")
}
_KEYS = {*_FIELDS, *_TRACES, "slot", *_MARKOV["up"], *_MARKOV["down"]}


def _arguments(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the constructor's arguments for the keys of a TOML file."""
    arguments: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise LinkError(f"unknown key {key!r}: use {', '.join(sorted(_KEYS))}")
        if key.endswith(("_to_low", "_to_high")):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise LinkError(f"{key} must be a probability, such as {key} = 0.1")
        elif not isinstance(value, str):
            raise LinkError(f'{key} must be text, such as latency = "20ms"')
        elif key in _FIELDS:
            field, parse = _FIELDS[key]
            arguments[field] = parse(value)
        elif key in _TRACES:
            path = folder / value
            try:
                arguments[key] = _TRACES[key](path)
            except KeyError as error:
                raise LinkError(f"cannot use the trace {path}: it has no column {error}") from None
            except (OSError, ValueError, TypeError, LinkError) as error:
                raise LinkError(f"cannot use the trace {path}: {error}") from None
    for direction, names in _MARKOV.items():
        if table.keys() & set(names):
            arguments[f"{direction}_rates"] = _markov_rates(table, names)
    if "slot" in table and not {"up_rates", "down_rates"} & arguments.keys():
        raise LinkError("slot is for Markov rates: give up_low, up_high, up_to_low and up_to_high")
    return arguments


def _markov_rates(table: dict[str, Any], names: list[str]) -> MarkovRates:
    if missing := [name for name in names if name not in table]:
        raise LinkError(f"Markov rates need {', '.join(names)}: {', '.join(missing)} is missing")
    low, high, to_low, to_high = (table[name] for name in names)
    slot = {"slot_s": parse_duration(table["slot"])} if "slot" in table else {}
    return MarkovRates(parse_bandwidth(low), parse_bandwidth(high), to_low, to_high, **slot)
