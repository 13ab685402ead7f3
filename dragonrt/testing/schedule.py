"""Everything that chance decides in a simulated run, drawn from one seed."""

import random
from dataclasses import dataclass

from dragonrt.side import Side
from dragonrt.testing.faults import Cut, Fault, HalfOpen, Stall

LATENCIES_S = (0.0, 0.005, 0.05, 0.2)
JITTERS = (0.0, 0.2, 1.0)
"""Jitter as a part of the latency."""
BANDWIDTHS = (None, 50e3, 500e3)
"""bit/s"""
DECODES_S = (0.001, 0.02, 0.1)
PREPARATIONS_S = (0.0, 0.05, 0.5)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One link, two speeds and what goes wrong; the same schedule gives the same run.

    `faults` has one entry for each connection that a device makes, in order; those after the last
    entry have none. Delays are means: every forward and every message draws its own from `seed`.
    """

    seed: int
    latency_s: float = 0.0
    jitter_s: float = 0.0
    bandwidth: float | None = None
    device_decode_s: float = 0.02
    cloud_decode_s: float = 0.02
    device_prepare_s: float = 0.0
    cloud_prepare_s: float = 0.0
    faults: tuple[Fault | None, ...] = ()

    @classmethod
    def draw(
        cls, seed: int, *, cuts: int = 0, stalls: bool = False, half_open: bool = False
    ) -> "Schedule":
        """The schedule of this seed, with `cuts` connections that end early."""
        chance = random.Random(seed)
        latency_s = chance.choice(LATENCIES_S)
        faults: list[Fault | None] = [_cut(chance) for _ in range(cuts)]
        if stalls:
            faults.append(Stall(chance.uniform(0.0, 1.0), chance.choice((0.3, 3.0, 20.0))))
        if half_open:
            deaf: tuple[Side, ...] = chance.choice((("device",), ("cloud",), ("device", "cloud")))
            faults.append(HalfOpen(deaf, chance.uniform(0.0, 1.0)))
        return cls(
            seed=seed,
            latency_s=latency_s,
            jitter_s=latency_s * chance.choice(JITTERS),
            bandwidth=chance.choice(BANDWIDTHS),
            device_decode_s=chance.choice(DECODES_S),
            cloud_decode_s=chance.choice(DECODES_S),
            device_prepare_s=chance.choice(PREPARATIONS_S),
            cloud_prepare_s=chance.choice(PREPARATIONS_S),
            faults=tuple(faults),
        )


def _cut(chance: random.Random) -> Cut:
    """A cut at a random time, byte or message; early ones hit the handshake and the Open."""
    sides: tuple[Side, ...] = ("device", "cloud")
    side, reset = chance.choice(sides), chance.random() < 0.5
    match chance.choice(("seconds", "bytes", "writes")):
        case "seconds":
            return Cut(side, after_s=chance.uniform(0.0, 2.0), reset=reset)
        case "bytes":
            return Cut(side, after_bytes=chance.randrange(3000), reset=reset)
        case _:
            return Cut(side, after_writes=chance.randrange(40), reset=reset)
