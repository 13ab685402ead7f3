"""The rules: how a side drafts, how two drafts give the target token, and how a block is verified.

A rule is a pure function of its arguments and the keyed noise. Aggregation (SPEC 1 - 1.2) names the
device and the cloud, not "local" and "remote", so both sides compute the same target.

In speculation (SPEC 2; QSV Eq. 1, 2) `q` is the drafter's distribution as the codec reconstructs
it, `p` the verifier's after the sampler. A step is the index of an answer token. Its noise decides
no earlier step, so a redrafted block may use it again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import Distribution, mix, total_variation
from dragonrt.distributions.distribution import every_token, probabilities_on, union_support
from dragonrt.errors import SamplingError
from dragonrt.sampling.noise import Noise, Purpose, race_at, race_dense
from dragonrt.sampling.samplers import Sampler, most_likely, sample
from dragonrt.side import Side


def side_weights(h_device: float, h_cloud: float) -> tuple[float, float]:
    """Return the mixture weights (device, cloud): softmax of the side relevances (DRAGON Eq. 4).

    A side's h̃ is the log-sum-exp of its documents' relevances, -inf if it has no documents.
    Equal, bit by bit, to `relevance_weights`. SamplingError if both are -inf, or one inf or NaN.
    """
    difference = h_device - h_cloud
    if not math.isfinite(difference):
        device, cloud = relevance_weights((h_device, h_cloud))
        return device, cloud
    odds = math.exp(-abs(difference))
    larger, smaller = 1 / (1 + odds), odds / (1 + odds)
    return (larger, smaller) if difference >= 0 else (smaller, larger)


def relevance_weights(relevances: Sequence[float]) -> tuple[float, ...]:
    """Return the mixture weights of any number of workers: the softmax of their side relevances.

    A worker without documents has -inf, so weight 0. SamplingError if all have, or for inf or NaN.
    """
    largest = max(relevances, default=-math.inf)
    if not math.isfinite(largest) or any(math.isnan(h) for h in relevances):
        raise SamplingError(f"relevances {list(relevances)} have no softmax; retrieve again")
    return renormalise([math.exp(h - largest) for h in relevances])


def renormalise(weights: Sequence[float]) -> tuple[float, ...]:
    """Return the weights scaled to sum 1. Raises SamplingError if none is above 0."""
    total = math.fsum(weights)
    if not total > 0:
        raise SamplingError("no connected worker has a weight above 0: wait for one that has")
    return tuple(weight / total for weight in weights)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One side's draft of a step: its token and the distribution it was drawn from."""

    token: int
    distribution: Distribution


class Rule(ABC):
    """A rule by which each side draws its draft, and both distributions give the target token."""

    name: ClassVar[str]

    def __init__(self, noise: Noise, sampler: Sampler) -> None:
        self._noise, self._sampler = noise, sampler
        self._greedy = sampler.temperature == 0

    @abstractmethod
    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Return the distribution to encode: a model's `p` [V], in Algorithm1 after the sampler."""

    @abstractmethod
    def draft(self, side: Side, step: int, p: Distribution) -> int:
        """Return the token that `side` drafts at `step`; `p` is its distribution after encoding."""

    @abstractmethod
    def target(
        self, step: int, device: Candidate, cloud: Candidate, weights: tuple[float, float]
    ) -> int:
        """Return the target token of `step`, given both sides' drafts and their `side_weights`."""


class Coupled(Rule):
    """The default rule: both sides draw with the same noise E (SPEC 1.2).

    The sampler acts on the mixture p_t. The target is argmax p_t(x) / E(x), whatever was drafted.
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

    Each side applies the sampler before it encodes its distribution. At temperature 0 the target is
    the most likely token of the mixture. `gamma` is the probability of choosing the device's draft;
    it does not change the law of the target (DRAGON §4.3).
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
    """Return the probability α that a side's own draft becomes the target (DRAGON Eq. 5).

    α = γ (1 - η_other δ) + (1 - γ) Σ p_own(x) p_t(x), where p_t is the mixture with weights η, and
    δ = TV(p_own, p_other). γ is the probability that the own draft, corrected, is chosen.
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
    """Return the aggregation rule `name`: coupled or algorithm1. SamplingError for other names."""
    if name not in RULES:
        raise SamplingError(f"unknown rule {name!r}; valid are {', '.join(RULES)}")
    return RULES[name](noise, sampler)


def token_acceptance(p_x: float, q_x: float) -> float:
    """Return min(1, p(x)/q(x)), the probability to accept a draft x (QSV Eq. 1); 1 if q(x) is 0."""
    return 1.0 if p_x >= q_x else p_x / q_x


def residual(p: NDArray[np.floating[Any]], q: Distribution) -> NDArray[np.float64]:
    """Return max(0, p - q), from which a rejected token is redrawn (QSV Eq. 2): float64 [V].

    Not normalised; all zero if `p` and `q` differ by rounding only.
    """
    excess = p.astype(np.float64)
    listed = excess[q.ids] - q.probabilities
    excess -= q.rest_density
    excess[q.ids] = listed
    return np.maximum(excess, 0.0, out=excess)


def corrected(
    noise: Noise, step: int, token: int, q: Distribution, p: NDArray[np.floating[Any]]
) -> int:
    """Return `token` with the probability min(1, p/q), otherwise a token drawn from max(0, p - q).

    If `token` was drawn from `q`, the result is distributed as `p`, floating [V] (QSV Eq. 1, 2).
    """
    u = noise.uniform(Purpose.ACCEPT, "cloud", step)
    if u < token_acceptance(float(p[token]), q.probability(token)):
        return token
    left = residual(p, q)
    if not left.any():
        return token  # the distributions differ by rounding only
    everything = Distribution(every_token(p.size), left, 0.0, p.size)
    return sample(everything, noise.uniform(Purpose.RESAMPLE, "cloud", step))


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of verifying a block: its first `accepted` tokens are decided, then `token`.

    `token` replaces the first rejected token or, if all are accepted, follows the block.
    """

    accepted: int
    token: int


class SpeculativeRule(ABC):
    """A rule of speculative decoding: how to draft the tokens of a block, and to verify them.

    Attributes:
        name: the rule's name for `speculative_rule`.
        sends_distributions: `verify` needs the distributions that the tokens were drafted from.
        drafts_from_quantized: `draft` needs the distribution after the codec, not before it.
    """

    name: ClassVar[str]
    sends_distributions: ClassVar[bool] = True
    drafts_from_quantized: ClassVar[bool] = True

    def __init__(self, noise: Noise, sampler: Sampler) -> None:
        self._noise, self._sampler = noise, sampler

    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Apply the sampler to a model's distribution `p`, [V]; return it to encode or verify."""
        return self._sampler.dense(p)

    @abstractmethod
    def draft(self, step: int, q: Distribution) -> int:
        """Return the token that the device drafts at `step`, given its distribution `q`."""

    def guess(self, step: int, q: Distribution) -> int:
        """Guess the token that the verifier will add at `step` after accepted drafts, from `q`."""
        return race_at(self._noise, step, q)

    @abstractmethod
    def verify(
        self,
        first: int,
        tokens: Sequence[int],
        q: Sequence[Distribution] | None,
        p: Callable[[int], NDArray[np.floating[Any]]],
    ) -> VerifyResult:
        """Verify drafted `tokens` from step `first` on; return how many pass, and the next token.

        `q` has the distribution that each token was drafted from. `p(i)` returns the verifier's of
        step `first + i` after `shape`, [V]; it is called in order, up to the first rejected token
        or the token behind the block. Raises SamplingError if `q` is None and the rule needs it.
        """


class Rejection(SpeculativeRule):
    """Accepts a draft x with probability min(1, p(x)/q(x)), else redraws it; the text follows `p`.

    The token after an accepted block is drawn with noise that both sides have, so that the drafter
    can guess it. The text depends on the seed, `q` and the ends of the blocks.
    """

    name = "rejection"

    @override
    def draft(self, step: int, q: Distribution) -> int:
        return sample(q, self._noise.uniform(Purpose.DRAFT, "device", step))

    @override
    def verify(
        self,
        first: int,
        tokens: Sequence[int],
        q: Sequence[Distribution] | None,
        p: Callable[[int], NDArray[np.floating[Any]]],
    ) -> VerifyResult:
        if q is None:
            raise SamplingError(
                f"rule {self.name} verifies with distributions and none were sent; "
                f"choose a codec that sends them, or the rule {CoupledSpeculation.name}"
            )
        for position, (token, drafted_from) in enumerate(zip(tokens, q, strict=True)):
            decided = corrected(self._noise, first + position, token, drafted_from, p(position))
            if decided != token:
                return VerifyResult(position, decided)
        count = len(tokens)
        return VerifyResult(count, race_dense(self._noise, first + count, p(count)))


class SampleQuantize(Rejection):
    """Baseline S-Q of QSV: drafts from the exact q, verifies with the quantized one.

    **Biased**: the text does not follow `p`, and a coarser codec adds to the bias. To compare only.
    """

    name = "sample-quantize"
    drafts_from_quantized = False


class CoupledSpeculation(SpeculativeRule):
    """The coupled rule: drafter and verifier draw with the same noise E; only tokens are sent.

    Every token is argmax p(x) / E(x), a function of `p` and the seed (SPEC 2). `q` is not used.
    """

    name = "coupled"
    sends_distributions = False

    @override
    def draft(self, step: int, q: Distribution) -> int:
        return race_at(self._noise, step, q)

    @override
    def verify(
        self,
        first: int,
        tokens: Sequence[int],
        q: Sequence[Distribution] | None,
        p: Callable[[int], NDArray[np.floating[Any]]],
    ) -> VerifyResult:
        for position, token in enumerate(tokens):
            decided = race_dense(self._noise, first + position, p(position))
            if decided != token:
                return VerifyResult(position, decided)
        count = len(tokens)
        return VerifyResult(count, race_dense(self._noise, first + count, p(count)))


SPECULATIVE_RULES: dict[str, type[SpeculativeRule]] = {
    each.name: each for each in (Rejection, CoupledSpeculation, SampleQuantize)
}
"""The rules by their names."""


def speculative_rule(name: str, noise: Noise, sampler: Sampler) -> SpeculativeRule:
    """Return the rule `name`: coupled, rejection or sample-quantize. SamplingError for others."""
    if name not in SPECULATIVE_RULES:
        raise SamplingError(f"unknown rule {name!r}; valid are {', '.join(SPECULATIVE_RULES)}")
    return SPECULATIVE_RULES[name](noise, sampler)
