"""Keyed noise, sampling parameters, and the rules by which two sides decide one token."""

from dragonrt.sampling.acceptance import (
    expected_acceptance_algorithm1,
    expected_acceptance_coupled,
)
from dragonrt.sampling.aggregation import (
    Algorithm1,
    Candidate,
    Coupled,
    Rule,
    rule,
    side_weights,
)
from dragonrt.sampling.errors import SamplingError
from dragonrt.sampling.noise import Noise, Purpose, Side
from dragonrt.sampling.samplers import Sampler, most_likely, race, sample

__all__ = [
    "Algorithm1",
    "Candidate",
    "Coupled",
    "Noise",
    "Purpose",
    "Rule",
    "Sampler",
    "SamplingError",
    "Side",
    "expected_acceptance_algorithm1",
    "expected_acceptance_coupled",
    "most_likely",
    "race",
    "rule",
    "sample",
    "side_weights",
]
