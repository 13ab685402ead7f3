"""Named links: TOML files that say how slow a link is, and the delay models made of them."""

import csv
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from dragonrt import bundled
from dragonrt.errors import LinkError
from dragonrt.link.markov import Direction, MarkovRates
from dragonrt.link.models import (
    DeliveryTrace,
    Jitter,
    JitterKind,
    LinkModel,
    RttSeries,
)
from dragonrt.link.units import parse_bandwidth, parse_duration
from retrieval.files import read_text

_LARGEST = 2**26  # bytes of a trace
OWN_PROFILES = Path("profiles")
"""Where people keep their own, below the directory that the program is started in."""

_MARKOV_KEYS = ("low", "high", "to_low", "to_high")
_PROBABILITIES = ("_to_low", "_to_high")
_KEYS = {
    "latency",
    "jitter",
    "jitter_kind",
    "period",
    "up",
    "down",
    "up_trace",
    "down_trace",
    "rtt_trace",
    "slot",
    *(f"{direction}_{key}" for direction in ("up", "down") for key in _MARKOV_KEYS),
}


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """How a link behaves. `up` is from the device to the cloud.

    `latency_s` is one-way and applies in each direction: a round trip takes twice as long.
    Bandwidths are in bit/s, None for no limit. Markov rates, or else a delivery trace, take the
    place of the bandwidth of their direction, an RTT series that of the latency.
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
        """The profile of that name, or the one in the TOML file of that path.

        A file of that name in the directory `profiles` goes before a bundled one. Paths of traces
        are relative to the file. Raises LinkError with one line saying what to do.
        """
        is_path = name.endswith(".toml") or "/" in name or "\\" in name
        path = Path(name) if is_path else _named(name)
        try:
            table = tomllib.loads(read_text(path))
        except FileNotFoundError:
            own = (file.stem for file in OWN_PROFILES.glob("*.toml"))
            names = ", ".join(sorted({*bundled.links(), *own}))
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
        """The models of the (outgoing, incoming) direction, seen from `side`."""
        up, down = self._model("up", seed), self._model("down", seed)
        return (up, down) if side == "device" else (down, up)

    def _model(self, direction: Direction, seed: int) -> LinkModel:
        return LinkModel(
            latency_s=self.latency_s,
            jitter=Jitter(self.jitter_kind, self.jitter_s, self.period_s),
            bandwidth=self.up if direction == "up" else self.down,
            rates=self.up_rates if direction == "up" else self.down_rates,
            deliveries=self.up_trace if direction == "up" else self.down_trace,
            rtts=self.rtt_trace,
            seed=seed,
            direction=direction,
        )


def _named(name: str) -> Path:
    own = OWN_PROFILES / f"{name}.toml"
    return own if own.is_file() else bundled.link_path(name)


def read_delivery_trace(path: Path) -> DeliveryTrace:
    """A Mahimahi file: one line per opportunity, the time in whole milliseconds."""
    try:
        return DeliveryTrace(tuple(int(line) for line in read_text(path, _LARGEST).split()))
    except (OSError, ValueError, LinkError) as error:
        raise LinkError(f"cannot use the delivery trace {path}: {error}") from None


def read_rtt_series(path: Path) -> RttSeries:
    """A CSV file with the columns time_s and rtt_ms."""
    try:
        lines = read_text(path, _LARGEST).splitlines()
        rows = [(float(row["time_s"]), float(row["rtt_ms"])) for row in csv.DictReader(lines)]
        return RttSeries(tuple(time for time, _ in rows), tuple(rtt / 1000 for _, rtt in rows))
    except KeyError as error:
        raise LinkError(f"cannot use the RTT series {path}: it has no column {error}") from None
    except (OSError, ValueError, TypeError, LinkError) as error:
        raise LinkError(f"cannot use the RTT series {path}: {error}") from None


def _arguments(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The constructor's arguments of the keys of a TOML file."""
    for key, value in table.items():
        if key not in _KEYS:
            raise LinkError(f"unknown key {key!r}: use {', '.join(sorted(_KEYS))}")
        if key.endswith(_PROBABILITIES):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise LinkError(f"{key} must be a probability, such as {key} = 0.1")
        elif not isinstance(value, str):
            raise LinkError(f'{key} must be text, such as latency = "20ms"')
    arguments: dict[str, Any] = {}
    for key, value in table.items():
        match key:
            case "latency" | "jitter" | "period":
                arguments[f"{key}_s"] = parse_duration(value)
            case "up" | "down":
                arguments[key] = parse_bandwidth(value)
            case "up_trace" | "down_trace":
                arguments[key] = read_delivery_trace(folder / value)
            case "rtt_trace":
                arguments[key] = read_rtt_series(folder / value)
            case "jitter_kind":
                if value not in get_args(JitterKind):
                    kinds = ", ".join(get_args(JitterKind))
                    raise LinkError(f"unknown kind of jitter {value!r}: choose one of {kinds}")
                arguments[key] = value
    for direction in ("up", "down"):
        if rates := _markov_rates(table, direction):
            arguments[f"{direction}_rates"] = rates
    if "slot" in table and not {"up_rates", "down_rates"} & arguments.keys():
        raise LinkError("slot is for Markov rates: give up_low, up_high, up_to_low and up_to_high")
    return arguments


def _markov_rates(table: dict[str, Any], direction: str) -> MarkovRates | None:
    """The rates of one direction, of the keys such as up_low; None if it has none of them."""
    names = [f"{direction}_{key}" for key in _MARKOV_KEYS]
    missing = [name for name in names if name not in table]
    if len(missing) == len(names):
        return None
    if missing:
        raise LinkError(f"Markov rates need {', '.join(names)}: {', '.join(missing)} is missing")
    low, high, to_low, to_high = (table[name] for name in names)
    slot = {"slot_s": parse_duration(table["slot"])} if "slot" in table else {}
    return MarkovRates(parse_bandwidth(low), parse_bandwidth(high), to_low, to_high, **slot)
