"""Verify a block of drafted tokens, and choose the token behind it (SPEC 2; QSV Eq. 1, 2).

A rule is a pure function of its arguments and the keyed noise. `q` is the drafter's distribution as
the codec reconstructs it, `p` the verifier's after the sampler. A step is the index of an answer
token. Its noise decides no earlier step, so a redrafted block may use it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import Distribution
from dragonrt.distributions.distribution import every_token
from dragonrt.errors import SamplingError
from dragonrt.sampling.noise import Noise, Purpose
from dragonrt.sampling.races import race_at, race_dense
from dragonrt.sampling.samplers import Sampler, sample


def token_acceptance(p_x: float, q_x: float) -> float:
    """Return min(1, p(x)/q(x)), the acceptance probability of x (QSV Eq. 1); 1 if q(x) is 0."""
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
    """Return `token`, a sample of `q`, if it is accepted, else its replacement: a sample of `p`."""
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
    """A verified block: its first `accepted` tokens, then `token`.

    `token` replaces the first rejected token or, if all are accepted, follows the block.
    """

    accepted: int
    token: int


class SpeculativeRule(ABC):
    """Drafts the tokens of a block and verifies the block.

    Attributes:
        name: what `speculative_rule` builds it from.
        sends_distributions: `verify` needs the distributions that the tokens were drafted from.
        drafts_from_quantized: `draft` needs the codec's reconstruction, not what was encoded.
    """

    name: ClassVar[str]
    sends_distributions: ClassVar[bool] = True
    drafts_from_quantized: ClassVar[bool] = True

    def __init__(self, noise: Noise, sampler: Sampler) -> None:
        self._noise, self._sampler = noise, sampler

    def shape(self, p: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return `p` after the sampler: what a side encodes or verifies with, float64 [V]."""
        return self._sampler.dense(p)

    @abstractmethod
    def draft(self, step: int, q: Distribution) -> int:
        """Return the drafted token of `step`."""

    def guess(self, step: int, q: Distribution) -> int:
        """Return the drafter's best guess of the token after an accepted block.

        It is argmax q(x) / E(x), with the noise that draws that token.
        """
        return race_at(self._noise, step, q)

    @abstractmethod
    def verify(
        self,
        first: int,
        tokens: Sequence[int],
        q: Sequence[Distribution] | None,
        p: Sequence[NDArray[np.floating[Any]]],
    ) -> VerifyResult:
        """Verify `tokens`, drafted for the steps from `first` on.

        `q` holds a distribution per token, `p` one more, of shape [V] each. `p[i]`, at step `first
        + i`, is read in order, up to the first rejected token. Raises SamplingError if `q` is None
        and the rule needs it.
        """


class Rejection(SpeculativeRule):
    """Accepts x if u < p(x)/q(x), else draws from the residual: the text is exact in law.

    The token after an accepted block is raced with shared noise, so that the drafter can guess it.
    The text depends on the seed, `q` and the ends of the blocks.
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
        p: Sequence[NDArray[np.floating[Any]]],
    ) -> VerifyResult:
        if q is None:
            raise SamplingError(
                f"rule {self.name} verifies with distributions and none were sent; "
                f"choose a codec that sends them, or the rule {CoupledSpeculation.name}"
            )
        for position, (token, drafted_from) in enumerate(zip(tokens, q, strict=True)):
            decided = corrected(self._noise, first + position, token, drafted_from, p[position])
            if decided != token:
                return VerifyResult(position, decided)
        count = len(tokens)
        return VerifyResult(count, race_dense(self._noise, first + count, p[count]))


class SampleQuantize(Rejection):
    """Baseline S-Q of QSV: drafts from the exact q, verifies with the quantized one.

    **Biased**: the text does not follow `p`; a coarser codec biases it more. For the comparison
    only.
    """

    name = "sample-quantize"
    drafts_from_quantized = False


class CoupledSpeculation(SpeculativeRule):
    """Both sides race with the same noise: only tokens are sent (SPEC 2, zero distributions).

    Every token of the text is argmax p(x) / E(x), a function of `p` and the seed alone. `q` is not
    used.
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
        p: Sequence[NDArray[np.floating[Any]]],
    ) -> VerifyResult:
        for position, token in enumerate(tokens):
            decided = race_dense(self._noise, first + position, p[position])
            if decided != token:
                return VerifyResult(position, decided)
        count = len(tokens)
        return VerifyResult(count, race_dense(self._noise, first + count, p[count]))


SPECULATIVE_RULES: dict[str, type[SpeculativeRule]] = {
    each.name: each for each in (Rejection, CoupledSpeculation, SampleQuantize)
}
"""The rules by their names."""


def speculative_rule(name: str, noise: Noise, sampler: Sampler) -> SpeculativeRule:
    """Return the rule of SPECULATIVE_RULES with this name. Raises SamplingError for another."""
    if name not in SPECULATIVE_RULES:
        raise SamplingError(f"unknown rule {name!r}; valid are {', '.join(SPECULATIVE_RULES)}")
    return SPECULATIVE_RULES[name](noise, sampler)
