"""Sampling parameters as a map from distributions to distributions, and draws from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.distributions.distribution import top_k, top_p
from dragonrt.settings import Share, check, setting

Temperature = Annotated[float, Meta(ge=0, le=100)]
TopK = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TopP = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Sampling parameters: temperature, then top-k, then top-p of what top-k keeps, then min-p.

    Call the sampler with a model's distribution to get the distribution to draw from. `temperature`
    0 keeps the most likely token alone; `top_k` 0, `top_p` 1 and `min_p` 0 keep all. `top_p` keeps
    the token that crosses it. Ties go to the lower id. Raises SettingError for values out of range.
    """

    temperature: Temperature = setting(
        1.0, "Sampling temperature. 0 is greedy.", letter="t", daily=True
    )
    top_k: TopK = setting(0, "Sample from the K most likely tokens. 0 keeps all.")
    top_p: TopP = setting(1.0, "Sample from the likeliest tokens that sum to this. 1 keeps all.")
    min_p: Share = setting(0.0, "Drop tokens below this share of the top probability. 0 keeps all.")

    def __post_init__(self) -> None:
        check(self)

    @property
    def _truncates(self) -> bool:
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def __call__(self, p: Distribution) -> Distribution:
        """Return the distribution to draw from, sum 1, given the model's distribution `p`."""
        if self.temperature == 1 and not self._truncates:
            return p
        if self.temperature == 0:
            ids = np.array((most_likely(p),), dtype=np.int64)
            return Distribution(ids, np.ones(1), 0.0, p.vocabulary)
        if p.rest > 0:
            # A cut may fall among the tokens that are not listed, so they are spelled out for it.
            if self._truncates:
                return Distribution.from_dense(self.dense(p.to_dense()))
            return self._heat(p)
        kept, weights = self._kept(p.probabilities)
        return Distribution(p.ids[kept], weights / weights.sum(), 0.0, p.vocabulary)

    def dense(self, p: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the probabilities to draw from, float64 [V], given a model's `p`, floating [V]."""
        if self.temperature != 0 and not self._truncates:
            weights = self._heated(p)
            weights /= weights.sum()
            return weights
        shaped = np.zeros(p.size)
        if self.temperature == 0:
            shaped[p.argmax()] = 1.0
        else:
            kept, weights = self._kept(p)
            shaped[kept] = weights / weights.sum()
        return shaped

    def _heat(self, p: Distribution) -> Distribution:
        """Apply the temperature alone to a distribution with mass on unlisted tokens."""
        largest = max(p.rest_density, float(p.probabilities.max()))
        weights = (p.probabilities / largest) ** (1 / self.temperature)
        others = p.vocabulary - p.ids.size
        rest = others * (p.rest_density / largest) ** (1 / self.temperature)
        total = float(weights.sum()) + rest
        return Distribution(p.ids, weights / total, rest / total, p.vocabulary)

    def _heated(self, p: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return `p` after the temperature, not normalised: a new array."""
        weights = p.astype(np.float64)
        if self.temperature != 1:
            weights /= p.max()
            np.power(weights, 1 / self.temperature, out=weights)
        return weights

    def _kept(self, p: NDArray[np.floating[Any]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the kept entries of `p`, increasing, and their weights, above 0, not normalised.

        A temperature keeps the order. So entries below the cut are removed first, because powers
        are expensive over a large vocabulary.
        """
        if 0 < self.top_k < p.size:
            kept = np.sort(top_k(p, self.top_k))
            weights = self._heated(p[kept])
            if self.top_p < 1:
                head = self._nucleus(weights)
                kept, weights = kept[head], weights[head]
        elif self.top_p < 1:
            heated = p if self.temperature == 1 else self._heated(p)
            kept = self._nucleus(heated)
            weights = heated[kept].astype(np.float64)
        else:
            # What min_p will keep, at least: single precision rounds by less than the margin.
            least = self.min_p**self.temperature * (1 - 1e-6) * float(p.max())
            kept = np.flatnonzero(p >= least) if least else np.flatnonzero(p)
            weights = self._heated(p[kept])
        possible = weights > 0
        if self.min_p > 0:
            possible &= weights >= self.min_p * weights.max()
        return kept[possible], weights[possible]

    def _nucleus(self, weights: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """Return the places of the fewest weights that hold the mass `top_p`, increasing."""
        return np.sort(top_p(weights, self.top_p * float(weights.sum(dtype=np.float64))))


def most_likely(p: Distribution) -> int:
    """Return the token with the largest probability, argmax p(x); ties: the lowest id."""
    position = int(p.probabilities.argmax())
    listed = int(p.ids[position])
    if p.rest == 0:
        return listed
    other = _unlisted(p, 0)
    lead = float(p.probabilities[position]) - p.rest_density
    return listed if lead > 0 or (lead == 0 and listed < other) else other


def sample(p: Distribution, u: float) -> int:
    """Return the token that `p` gives for a random number `u`, uniform in [0, 1).

    It is found in the cumulated probabilities: the listed tokens by id, then the other tokens. `p`
    need not sum to 1.
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
    """Return the `index`-th token, by id, of those that `p` does not list."""
    before = p.ids - np.arange(p.ids.size)  # number of unlisted tokens below each listed one
    return index + int(before.searchsorted(index, side="right"))
