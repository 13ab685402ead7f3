"""Which token a side drafts, and which token the two sides together decide (SPEC 1 - 1.2).

A rule is a pure function of its arguments and the keyed noise, and speaks of the device and the
cloud, never of "local" and "remote": whoever computes a target computes the same one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, Step, mix, total_variation
from dragonrt.distributions.distribution import probabilities_on, union_support
from dragonrt.distributions.race_codec import OwnRace, RaceEntries
from dragonrt.errors import SamplingError
from dragonrt.sampling.certificate import Certificate, certificate, cut_level, cuts
from dragonrt.sampling.noise import Noise, Purpose, RaceNoise
from dragonrt.sampling.races import race_at
from dragonrt.sampling.samplers import Sampler, most_likely, sample
from dragonrt.side import Side


def side_weights(h_device: float, h_cloud: float) -> tuple[float, float]:
    """η = softmax([h̃_device, h̃_cloud]), always in this order (DRAGON Eq. 4).

    The relevances are log-sum-exps over each side's documents; a side without any has -inf.
    Raises SamplingError where no softmax exists. Bits as `relevance_weights` has them.
    """
    difference = h_device - h_cloud
    if not math.isfinite(difference):
        device, cloud = relevance_weights((h_device, h_cloud))
        return device, cloud
    odds = math.exp(-abs(difference))
    larger, smaller = 1 / (1 + odds), odds / (1 + odds)
    return (larger, smaller) if difference >= 0 else (smaller, larger)


def relevance_weights(relevances: Sequence[float]) -> tuple[float, ...]:
    """softmax of the workers' h̃: `side_weights` for any number of workers, in their order.

    A worker without documents has -inf and the weight 0. Raises SamplingError where no softmax
    exists.
    """
    largest = max(relevances, default=-math.inf)
    if not math.isfinite(largest) or any(math.isnan(h) for h in relevances):
        raise SamplingError(f"relevances {list(relevances)} have no softmax; retrieve again")
    return renormalise([math.exp(h - largest) for h in relevances], [True] * len(relevances))


def renormalise(weights: Sequence[float], present: Sequence[bool]) -> tuple[float, ...]:
    """The weights of a round in which only the workers that are `present` take part: sum 1.

    The others get 0. Raises SamplingError where no weight is left.
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


class Rule(Protocol):
    """How drafts are drawn, and how two of them become the target token."""

    @property
    def name(self) -> str:
        """The name that `rule` makes this rule from."""

    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """What a side encodes, given its locally aggregated distribution `p`, floating [V]."""

    def draft(self, side: Side, step: int, p: Distribution) -> int:
        """The draft of `side`, given what the codec reconstructs of its `shape`."""

    def target(
        self, step: int, device: Candidate, cloud: Candidate, weights: tuple[float, float]
    ) -> int:
        """The target token, given both drafts of the step and `side_weights`."""


class Coupled:
    """Both sides race with the same noise (SPEC 1.2); the sampler acts on the mixture."""

    __slots__ = ("_noise", "_sampler")
    name = "coupled"

    def __init__(self, noise: Noise, sampler: Sampler) -> None:
        self._noise = noise
        self._sampler = sampler

    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """`p` itself: the target is a function of the mixture of what the models said."""
        return p

    def draft(self, side: Side, step: int, p: Distribution) -> int:
        """argmax p(x) / E(x), with the noise that the target will use, whatever the side."""
        if isinstance(p, OwnRace) and not cuts(self._sampler):
            scores = p.probabilities[p.ids.searchsorted(p.listed)]
            return int(p.listed[(scores / self._noise_at(step)(p.vocabulary, p.listed)).argmax()])
        return self._race(step, p)

    def target(
        self, step: int, device: Candidate, cloud: Candidate, weights: tuple[float, float]
    ) -> int:
        """argmax p_t(x) / E(x) of the mixture p_t; the drafted tokens do not matter."""
        return self._race(step, mix((device.distribution, cloud.distribution), weights))

    def listing(self, step: int, p: NDArray[np.floating[Any]], tau: float) -> Step:
        """What the race codec goes by at a step: the noise, or where the sampler cuts the level."""
        if cuts(self._sampler):
            return Step(step, threshold=tau * cut_level(self._sampler, p))
        return Step(step, threshold=tau, noise=self._noise_at(step))

    def certified(
        self, step: int, own: OwnRace, theirs: RaceEntries, weights: tuple[float, float]
    ) -> Certificate:
        """The target as far as one side can prove it; the weights are of `own` and `theirs`."""
        return certificate(self._sampler, self._noise_at(step), own, theirs, weights)

    def _noise_at(self, step: int) -> RaceNoise:
        return RaceNoise(self._noise, step, self._sampler.temperature)

    def _race(self, step: int, p: Distribution) -> int:
        if self._sampler.temperature == 0:
            return most_likely(p)
        return race_at(self._noise, step, self._sampler(p))


class Algorithm1:
    """Speculative aggregation of DRAGON (SPEC 1.1): each side's draft is corrected, one is taken.

    The sampler acts on each side's distribution before it is encoded, except at temperature 0,
    where the target is the most likely token of the mixture of what the models said. `gamma` is how
    often the device's is taken: the law of the target does not depend on it (DRAGON §4.3).
    """

    __slots__ = ("_gamma", "_greedy", "_noise", "_sampler")
    name = "algorithm1"

    def __init__(self, noise: Noise, sampler: Sampler, gamma: float = 0.5) -> None:
        self._noise = noise
        self._sampler = sampler
        self._gamma = gamma
        self._greedy = sampler.temperature == 0

    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """`p` after the sampler; at temperature 0 `p` itself."""
        return p if self._greedy else self._sampler.dense(p)

    def draft(self, side: Side, step: int, p: Distribution) -> int:
        """A sample of `p` from this side's own noise; at temperature 0 its most likely token."""
        if self._greedy:
            return most_likely(p)
        return sample(p, self._noise.uniform(Purpose.DRAFT, side, step))

    def target(
        self, step: int, device: Candidate, cloud: Candidate, weights: tuple[float, float]
    ) -> int:
        """A sample of the mixture: one of the corrected drafts, the device's with probability γ."""
        if self._greedy:
            return most_likely(mix((device.distribution, cloud.distribution), weights))
        if self._noise.uniform(Purpose.CHOICE, None, step) < self._gamma:
            return self._corrected("device", step, device, cloud.distribution, weights[1])
        return self._corrected("cloud", step, cloud, device.distribution, weights[0])

    def _corrected(
        self, side: Side, step: int, own: Candidate, other: Distribution, other_weight: float
    ) -> int:
        """Sample(x, p_own, p_other, η_other): `own.token` as if it were drawn from the mixture."""
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
    """α = γ (1 - η_other δ) + (1 - γ) Σ p_own(x) p_t(x), δ = TV(p_own, p_other) (DRAGON Eq. 5).

    γ is how often the own corrected draft is taken. α grows with it (Theorem 4.2).
    """
    p_target = mix((p_own, p_other), (eta_own, 1 - eta_own))
    ids = p_target.ids
    both = float(probabilities_on(p_own, ids) @ p_target.probabilities)
    both += p_own.rest_density * p_target.rest
    kept = 1 - (1 - eta_own) * total_variation(p_own, p_other)
    return gamma_own * kept + (1 - gamma_own) * both


def rule(name: str, noise: Noise, sampler: Sampler) -> Rule:
    """The rule called `name`: "coupled" or "algorithm1". Raises SamplingError for another name."""
    match name:
        case Coupled.name:
            return Coupled(noise, sampler)
        case Algorithm1.name:
            return Algorithm1(noise, sampler)
    raise SamplingError(f"unknown rule {name!r}; valid are {Coupled.name} and {Algorithm1.name}")
