"""Rule experts of mode dragon, for comparison: per token the best single document (SPEC 1.9)."""

import math
from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from dragonrt.distributions import Distribution
from dragonrt.distributions.distribution import probabilities_on, union_support
from dragonrt.sampling.aggregation import RULES, Coupled, Predicted, Seen


class Experts(Coupled):
    """The best document's score (PCED, arXiv 2601.08670), raced for with the same noise.

    score_i(x) = (1 + β) log p_i(x) - β log p_0(x) + γ log r_i, p_0 without a document, r_i the
    relevance. A side sends max_i score_i as a distribution over the tokens that are plausible to
    it, and the logarithm of its sum as its relevance. The target is the larger of both.
    """

    __slots__ = ()
    name = "experts"
    bare = True
    steerable = True
    BETA, GAMMA, PLAUSIBLE = 0.5, 1.0, -2.3

    @override
    def seen(self, prediction: Predicted) -> Seen:
        """Return exp(max_i score_i), normalised, and the logarithm of its sum."""
        logs, relevances = prediction.experts()
        logs = logs.astype(np.float64)
        best = logs[:-1].max(axis=0)
        ids = np.flatnonzero(best >= best.max() + self.PLAUSIBLE)
        scores = (1 + self.BETA) * logs[:-1, ids] - self.BETA * logs[-1, ids]
        scores += self.GAMMA * relevances[:-1, None]
        score = scores.max(axis=0)
        p = np.zeros(logs.shape[1])
        p[ids] = np.exp(score - score.max())
        total = float(p.sum())
        return p / total, float(score.max()) + math.log(total), 0.0

    @override
    def combined(self, each: Sequence[Distribution], weights: Sequence[float]) -> Distribution:
        """Return max_s w_s p_s(x), normalised."""
        ids = union_support(each)
        p = np.maximum(*(w * probabilities_on(q, ids) for q, w in zip(each, weights, strict=True)))
        density = max(w * q.rest_density for q, w in zip(each, weights, strict=True))
        rest = density * (each[0].vocabulary - ids.size)
        total = float(p.sum()) + rest
        return Distribution(ids, p / total, rest / total, each[0].vocabulary)


RULES[Experts.name] = Experts
