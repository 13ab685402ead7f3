"""Sampling parameters as a map from distributions to distributions, and draws from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.distributions.truncation import top_k, top_p
from dragonrt.sampling.errors import SamplingError


@dataclass(frozen=True, slots=True)
class Sampler:
    """Temperature, then top-k, then top-p of what is left, then min-p.

    `temperature` 0 is the most likely token; `top_k` 0, `top_p` 1 and `min_p` 0 keep everything.
    `top_p` keeps the token that crosses it, `min_p` is relative to the most likely token, ties go
    to the lower id. Raises SamplingError for parameters out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise SamplingError(f"temperature {self.temperature} must be finite and at least 0")
        if self.top_k < 0:
            raise SamplingError(f"top_k {self.top_k} must be at least 1, or 0 to keep all tokens")
        if not 0 < self.top_p <= 1:
            raise SamplingError(f"top_p {self.top_p} must be above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise SamplingError(f"min_p {self.min_p} must be between 0 and 1")

    def __call__(self, p: Distribution) -> Distribution:
        """The distribution to draw from, given the model's distribution `p`; sums to 1."""
        truncates = self.top_k > 0 or self.top_p < 1 or self.min_p > 0
        if self.temperature == 1 and not truncates:
            return p
        if self.temperature == 0:
            ids = np.array((most_likely(p),), dtype=np.int64)
            return Distribution(ids, np.ones(1), 0.0, p.vocabulary)
        if p.rest > 0:
            # A cut may fall among the tokens that are not listed, so they are spelled out for it.
            return Distribution.from_dense(self.dense(p.to_dense())) if truncates else self._heat(p)
        weights = self._weights(p.probabilities)
        kept = np.flatnonzero(weights > 0)
        values = weights[kept]
        return Distribution(p.ids[kept], values / values.sum(), 0.0, p.vocabulary)

    def dense(self, p: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The same for the probabilities of all tokens: floating [V] to float64 [V]."""
        if self.temperature == 0:
            one_hot = np.zeros(p.size)
            one_hot[p.argmax()] = 1.0
            return one_hot
        weights = self._weights(p.astype(np.float64))
        return weights / float(weights.sum())

    def _heat(self, p: Distribution) -> Distribution:
        """Temperature alone, for a distribution with mass on the tokens that are not listed."""
        largest = max(p.rest_density, float(p.probabilities.max()))
        weights = (p.probabilities / largest) ** (1 / self.temperature)
        others = p.vocabulary - p.ids.size
        rest = others * (p.rest_density / largest) ** (1 / self.temperature)
        total = float(weights.sum()) + rest
        return Distribution(p.ids, weights / total, rest / total, p.vocabulary)

    def _weights(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """What is kept of `p` after temperature and truncation, not normalised."""
        weights = p
        if self.temperature != 1:
            weights = (p / p.max()) ** (1 / self.temperature)
        if 0 < self.top_k < weights.size:
            weights = _only(weights, top_k(weights, self.top_k))
        if self.top_p < 1:
            weights = _only(weights, top_p(weights, self.top_p * float(weights.sum())))
        if self.min_p > 0:
            weights = np.where(weights >= self.min_p * weights.max(), weights, 0.0)
        return weights


def most_likely(p: Distribution) -> int:
    """argmax p(x); ties: the lowest id."""
    position = int(p.probabilities.argmax())
    listed = int(p.ids[position])
    if p.rest == 0:
        return listed
    other = _unlisted(p, 0)
    lead = float(p.probabilities[position]) - p.rest_density
    return listed if lead > 0 or (lead == 0 and listed < other) else other


def sample(p: Distribution, u: float) -> int:
    """The token at `u` in [0, 1) of the inverse cumulative distribution: listed tokens first.

    `p` need not sum to 1.
    """
    cumulated = p.probabilities.cumsum()
    listed_mass = float(cumulated[-1])
    mass = u * (listed_mass + p.rest)
    if mass < listed_mass:
        return int(p.ids[cumulated.searchsorted(mass, side="right")])
    if p.rest == 0:  # u * total was rounded up to total: the last token that is possible
        return int(p.ids[cumulated.searchsorted(listed_mass)])
    others = p.vocabulary - len(p)
    return _unlisted(p, min(int((mass - listed_mass) / p.rest_density), others - 1))


def _unlisted(p: Distribution, index: int) -> int:
    """The token with this index among those that `p` does not list, in the order of ids."""
    before = p.ids - np.arange(p.ids.size)  # how many unlisted tokens stand below each listed one
    return index + int(before.searchsorted(index, side="right"))


def _only(weights: NDArray[np.float64], kept: NDArray[np.int64]) -> NDArray[np.float64]:
    truncated = np.zeros_like(weights)
    truncated[kept] = weights[kept]
    return truncated
