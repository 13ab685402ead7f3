"""Keyed noise, sampling parameters, and the rules by which two sides decide one token."""

from dragonrt.errors import SamplingError
from dragonrt.sampling.acceptance import (
    acceptance_probability,
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
from dragonrt.sampling.approximation import (
    expected_acceptance_sprinter,
    expected_run_length,
    mixture_tv,
    output_distribution,
    stopping_time,
    verify_last,
)
from dragonrt.sampling.iteration import iteration_latency
from dragonrt.sampling.mixing import (
    acceptance_change,
    aggregation_bias,
    bias_bound,
    missed_mass,
    mixture,
    relevance_weights,
    renormalise,
)
from dragonrt.sampling.noise import Noise, Purpose
from dragonrt.sampling.races import race
from dragonrt.sampling.samplers import Sampler, most_likely, sample
from dragonrt.sampling.stopping import (
    AdaEDL,
    DraftSignals,
    FixedLength,
    SpecDecPlusPlus,
    StoppingRule,
)
from dragonrt.sampling.verification import (
    CoupledSpeculation,
    Rejection,
    SampleQuantize,
    SpeculativeRule,
    VerifyResult,
    residual,
    speculative_rule,
    token_acceptance,
)

__all__ = [
    "AdaEDL",
    "Algorithm1",
    "Candidate",
    "Coupled",
    "CoupledSpeculation",
    "DraftSignals",
    "FixedLength",
    "Noise",
    "Purpose",
    "Rejection",
    "Rule",
    "SampleQuantize",
    "Sampler",
    "SamplingError",
    "SpecDecPlusPlus",
    "SpeculativeRule",
    "StoppingRule",
    "VerifyResult",
    "acceptance_change",
    "acceptance_probability",
    "aggregation_bias",
    "bias_bound",
    "expected_acceptance_algorithm1",
    "expected_acceptance_coupled",
    "expected_acceptance_sprinter",
    "expected_run_length",
    "iteration_latency",
    "missed_mass",
    "mixture",
    "mixture_tv",
    "most_likely",
    "output_distribution",
    "race",
    "relevance_weights",
    "renormalise",
    "residual",
    "rule",
    "sample",
    "side_weights",
    "speculative_rule",
    "stopping_time",
    "token_acceptance",
    "verify_last",
]
