"""Keyed noise, sampling parameters, and the rules by which two sides decide one token."""

from dragonrt.sampling.acceptance import (
    acceptance_probability,
    expected_acceptance_algorithm1,
    expected_acceptance_coupled,
    expected_accepted,
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
from dragonrt.sampling.speculative import (
    CoupledSpeculation,
    Rejection,
    SampleQuantize,
    SpeculativeRule,
    Verdict,
    residual,
    speculative_rule,
    token_acceptance,
)

__all__ = [
    "Algorithm1",
    "Candidate",
    "Coupled",
    "CoupledSpeculation",
    "Noise",
    "Purpose",
    "Rejection",
    "Rule",
    "SampleQuantize",
    "Sampler",
    "SamplingError",
    "Side",
    "SpeculativeRule",
    "Verdict",
    "acceptance_probability",
    "expected_acceptance_algorithm1",
    "expected_acceptance_coupled",
    "expected_accepted",
    "most_likely",
    "race",
    "residual",
    "rule",
    "sample",
    "side_weights",
    "speculative_rule",
    "token_acceptance",
]
