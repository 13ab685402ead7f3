"""Named links: TOML files that say how slow a link is, and the delay models made of them."""

import csv
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from dragonrt.link.errors import LinkError
from dragonrt.link.models import (
    DeliveryTrace,
    Direction,
    Jitter,
    JitterKind,
    LinkModel,
    RttSeries,
)
from dragonrt.link.units import parse_bandwidth, parse_duration

PROFILES = Path(__file__).resolve().parents[2] / "profiles" / "links"
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
}


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """How a link behaves. `up` is from the device to the cloud.

    `latency_s` is one-way and applies in each direction: a round trip takes twice as long.
    Bandwidths are in bit/s, None for no limit. A delivery trace takes the place of the bandwidth
    of its direction, an RTT series that of the latency.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    jitter_kind: JitterKind = "uniform"
    period_s: float = 10.0
    up: float | None = None
    down: float | None = None
    up_trace: DeliveryTrace | None = None
    down_trace: DeliveryTrace | None = None
    rtt_trace: RttSeries | None = None

    @classmethod
    def load(cls, name: str) -> Self:
        """The profile of that name, or the one in the TOML file of that path.

        Paths of traces are relative to the file. Raises LinkError with one line saying what to do.
        """
        is_path = name.endswith(".toml") or "/" in name or "\\" in name
        path = Path(name) if is_path else PROFILES / f"{name}.toml"
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            names = ", ".join(sorted(file.stem for file in PROFILES.glob("*.toml")))
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
            deliveries=self.up_trace if direction == "up" else self.down_trace,
            rtts=self.rtt_trace,
            seed=seed,
            direction=direction,
        )


def read_delivery_trace(path: Path) -> DeliveryTrace:
    """A Mahimahi file: one line per opportunity, the time in whole milliseconds."""
    try:
        return DeliveryTrace(tuple(int(line) for line in path.read_text("ascii").split()))
    except (OSError, ValueError, LinkError) as error:
        raise LinkError(f"cannot use the delivery trace {path}: {error}") from None


def read_rtt_series(path: Path) -> RttSeries:
    """A CSV file with the columns time_s and rtt_ms."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [(float(row["time_s"]), float(row["rtt_ms"])) for row in csv.DictReader(file)]
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
        if not isinstance(value, str):
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
    return arguments
