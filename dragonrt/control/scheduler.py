"""Choose the side that aggregates next (SPEC 1.3).

`greedy` is DRAGON's scheduler (Eq. 6-8): after every aggregation it hands over to the other side
if the expected latency per token is lower there. `both` is leaderless: nothing is scheduled.
"""

from dataclasses import dataclass
from enum import StrEnum

from dragonrt.sampling.noise import Noise, Purpose
from dragonrt.side import Side, other


class Aggregator(StrEnum):
    """The side that aggregates: the values of `--aggregator`."""

    BOTH = "both"
    GREEDY = "greedy"
    DEVICE = "device"
    CLOUD = "cloud"
    RANDOM = "random"
    SYNC = "sync"

    def first(self) -> Side:
        """Return the side that decides step 0, if one side decides."""
        return "cloud" if self is Aggregator.CLOUD else "device"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The scheduler's input at a step: seconds, and acceptance rates in [0, 1]."""

    decode_s: dict[Side, float]
    acceptance: dict[Side, float]
    rtt_s: float


def expected_latency(aggregator: Side, estimate: Estimate) -> float:
    """Return Z of one side: expected seconds per token if that side aggregates (DRAGON Eq. 7)."""
    remote = other(aggregator)
    local_s, remote_s = estimate.decode_s[aggregator], estimate.decode_s[remote]
    accepted = estimate.acceptance[remote]
    waits = max(local_s, remote_s + estimate.rtt_s)
    return accepted * max(local_s, remote_s) + (1.0 - accepted) * waits


def latency_difference(aggregator: Side, estimate: Estimate) -> float:
    """Return ΔZ: seconds per token that handing over would save (DRAGON Eq. 8)."""
    return expected_latency(aggregator, estimate) - expected_latency(other(aggregator), estimate)


def next_aggregator(
    placement: Aggregator, step: int, current: Side, estimate: Estimate, noise: Noise
) -> Side:
    """Return the side that decides `step`, chosen by `current`, which decided the step before."""
    match placement:
        case Aggregator.GREEDY:
            return other(current) if latency_difference(current, estimate) > 0 else current
        case Aggregator.RANDOM:
            coin = noise.uniform(Purpose.AGGREGATOR, None, step)
            return "device" if coin < 0.5 else "cloud"
        case _:
            return current
