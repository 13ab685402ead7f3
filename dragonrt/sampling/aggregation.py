"""Aggregation: the token that a side drafts, and the one that two drafts decide (SPEC 1 - 1.2).

A rule is a pure function of its arguments and the keyed noise. It names the device and the cloud,
not "local" and "remote", so both sides compute the same target.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import Distribution, mix, total_variation
from dragonrt.distributions.distribution import probabilities_on, union_support
from dragonrt.errors import SamplingError
from dragonrt.sampling.noise import Noise, Purpose
from dragonrt.sampling.races import race_at
from dragonrt.sampling.samplers import Sampler, most_likely, sample
from dragonrt.side import Side


def side_weights(h_device: float, h_cloud: float) -> tuple[float, float]:
    """Return η = softmax([h̃_device, h̃_cloud]), always in this order (DRAGON Eq. 4).

    The relevances are log-sum-exps over each side's documents, -inf for a side without documents.
    The bits equal `relevance_weights`. Raises SamplingError if no softmax exists.
    """
    difference = h_device - h_cloud
    if not math.isfinite(difference):
        device, cloud = relevance_weights((h_device, h_cloud))
        return device, cloud
    odds = math.exp(-abs(difference))
    larger, smaller = 1 / (1 + odds), odds / (1 + odds)
    return (larger, smaller) if difference >= 0 else (smaller, larger)


def relevance_weights(relevances: Sequence[float]) -> tuple[float, ...]:
    """Return the softmax of any number of workers' h̃, in their order; see `side_weights`.

    A worker without documents has -inf and the weight 0. Raises SamplingError if no softmax exists.
    """
    largest = max(relevances, default=-math.inf)
    if not math.isfinite(largest) or any(math.isnan(h) for h in relevances):
        raise SamplingError(f"relevances {list(relevances)} have no softmax; retrieve again")
    return renormalise([math.exp(h - largest) for h in relevances], [True] * len(relevances))


def renormalise(weights: Sequence[float], present: Sequence[bool]) -> tuple[float, ...]:
    """Return the weights of the workers that are `present`, scaled to sum 1; the others get 0.

    Raises SamplingError if no weight is left.
    """
    taken = [weight if here else 0.0 for weight, here in zip(weights, present, strict=True)]
    total = math.fsum(taken)
    if not total > 0:
        raise SamplingError("no worker that takes part has a weight above 0; wait for one that has")
    return tuple(weight / total for weight in taken)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One side's draft of a step: its token and the distribution it was drawn from."""

    token: int
    distribution: Distribution


class Rule(ABC):
    """Draws drafts, and makes two of them the target token."""

    name: ClassVar[str]

    def __init__(self, noise: Noise, sampler: Sampler) -> None:
        self._noise, self._sampler = noise, sampler
        self._greedy = sampler.temperature == 0

    @abstractmethod
    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Return what a side encodes of its locally aggregated distribution `p`, floating [V]."""

    @abstractmethod
    def draft(self, side: Side, step: int, p: Distribution) -> int:
        """Return the draft of `side`, given what the codec reconstructs of its `shape`."""

    @abstractmethod
    def target(
        self, step: int, device: Candidate, cloud: Candidate, weights: tuple[float, float]
    ) -> int:
        """Return the target token, given both drafts of the step and `side_weights`."""


class Coupled(Rule):
    """Both sides race with the same noise (SPEC 1.2); the sampler acts on the mixture.

    The target is argmax p_t(x) / E(x) of the mixture p_t: the drafted tokens do not matter.
    """

    name = "coupled"

    @override
    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        return p

    @override
    def draft(self, side: Side, step: int, p: Distribution) -> int:
        return most_likely(p) if self._greedy else race_at(self._noise, step, self._sampler(p))

    @override
    def target(
        self, step: int, device: Candidate, cloud: Candidate, weights: tuple[float, float]
    ) -> int:
        return self.draft("device", step, mix((device.distribution, cloud.distribution), weights))


class Algorithm1(Rule):
    """Speculative aggregation of DRAGON (SPEC 1.1): correct each side's draft, then choose one.

    Each side samples its distribution before encoding. At temperature 0 the target is the most
    likely token of the mixture. `gamma` is the probability of choosing the device's draft; it does
    not change the law of the target (DRAGON §4.3).
    """

    name = "algorithm1"

    def __init__(self, noise: Noise, sampler: Sampler, gamma: float = 0.5) -> None:
        super().__init__(noise, sampler)
        self._gamma = gamma

    @override
    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        return p if self._greedy else self._sampler.dense(p)

    @override
    def draft(self, side: Side, step: int, p: Distribution) -> int:
        if self._greedy:
            return most_likely(p)
        return sample(p, self._noise.uniform(Purpose.DRAFT, side, step))

    @override
    def target(
        self, step: int, device: Candidate, cloud: Candidate, weights: tuple[float, float]
    ) -> int:
        if self._greedy:
            return most_likely(mix((device.distribution, cloud.distribution), weights))
        if self._noise.uniform(Purpose.CHOICE, None, step) < self._gamma:
            return self._corrected("device", step, device, cloud.distribution, weights[1])
        return self._corrected("cloud", step, cloud, device.distribution, weights[0])

    def _corrected(
        self, side: Side, step: int, own: Candidate, other: Distribution, other_weight: float
    ) -> int:
        """Return Sample(x, p_own, p_other, η_other): `own.token` as a sample of the mixture."""
        p_own, p_other = own.distribution.probability(own.token), other.probability(own.token)
        if p_own <= p_other:
            return own.token
        u = self._noise.uniform(Purpose.ACCEPT, side, step)
        if u >= other_weight * (1 - p_other / p_own):
            return own.token
        return self._resampled(side, step, own, other)

    def _resampled(self, side: Side, step: int, own: Candidate, other: Distribution) -> int:
        ids = union_support((own.distribution, other))
        excess = probabilities_on(other, ids) - probabilities_on(own.distribution, ids)
        density = max(0.0, other.rest_density - own.distribution.rest_density)
        residual = Distribution(
            ids, np.maximum(excess, 0.0), density * (other.vocabulary - ids.size), other.vocabulary
        )
        if residual.rest == 0 and not residual.probabilities.any():
            return own.token  # the distributions differ by rounding only
        return sample(residual, self._noise.uniform(Purpose.RESAMPLE, side, step))


def expected_acceptance_algorithm1(
    p_own: Distribution, p_other: Distribution, eta_own: float, gamma_own: float = 0.5
) -> float:
    """Return α = γ (1 - η_other δ) + (1 - γ) Σ p_own(x) p_t(x), δ = TV(p_own, p_other).

    DRAGON Eq. 5. γ, the share of the own corrected draft, raises α (Theorem 4.2).
    """
    p_target = mix((p_own, p_other), (eta_own, 1 - eta_own))
    ids = p_target.ids
    both = float(probabilities_on(p_own, ids) @ p_target.probabilities)
    both += p_own.rest_density * p_target.rest
    kept = 1 - (1 - eta_own) * total_variation(p_own, p_other)
    return gamma_own * kept + (1 - gamma_own) * both


RULES: dict[str, type[Rule]] = {each.name: each for each in (Coupled, Algorithm1)}
"""The rules by their names."""


def rule(name: str, noise: Noise, sampler: Sampler) -> Rule:
    """Return the rule of RULES with this name. Raises SamplingError for another name."""
    if name not in RULES:
        raise SamplingError(f"unknown rule {name!r}; valid are {', '.join(RULES)}")
    return RULES[name](noise, sampler)
