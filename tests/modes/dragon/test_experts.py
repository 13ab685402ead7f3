"""Per token the best single document (SPEC 1.9): scores, and what two sides make of them."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.modes.dragon.experts import Experts
from dragonrt.sampling.aggregation import Candidate, side_weights
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from tests.sampling.test_aggregation import fits

V = 6


@dataclass(frozen=True)
class Rows:
    """Implements Predicted."""

    logs: NDArray[np.float64]
    relevances: NDArray[np.float64]
    p: NDArray[np.float32]
    relevance: float = 0.0
    kept: float = -3.0

    def experts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.logs, self.relevances


def rows(seed: int, documents: int, spread: float) -> Rows:
    random = np.random.default_rng(seed)
    logits = spread * random.standard_normal((documents + 1, V))
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    relevances = np.append(random.standard_normal(documents), -np.inf)
    return Rows(logs, relevances, np.full(V, 1 / V, np.float32))


def experts(sampler: Sampler | None = None) -> Experts:
    return Experts(Noise(5), sampler or Sampler())


def scores(*sides: Rows) -> NDArray[np.float64]:
    """max_i score_i over all documents, as SPEC 1.9 has it; one model without documents."""
    each = [
        1.5 * log - 0.5 * side.logs[-1] + relevance
        for side in sides
        for log, relevance in zip(side.logs[:-1], side.relevances, strict=False)
    ]
    found: NDArray[np.float64] = np.max(each, axis=0)
    return found


def test_a_side_sends_its_best_scores_of_plausible_tokens() -> None:
    for seed in range(20):
        side = rows(seed, 3, 2.0)
        p, relevance, kept = experts().seen(side)
        best = side.logs[:-1].max(axis=0)
        plausible = best >= best.max() - 2.3
        assert kept == 0.0
        assert (p > 0).tolist() == plausible.tolist()
        assert np.log(p[plausible]) + relevance == pytest.approx(scores(side)[plausible])


def test_two_sides_choose_the_best_document_of_both() -> None:
    """Every token is plausible here, so that the target is that of all documents at one place."""
    device, cloud = rows(1, 2, 0.3), rows(2, 3, 0.3)
    cloud.logs[-1] = device.logs[-1]
    for temperature, steps in ((0.0, 1), (0.7, 6000), (1.0, 6000)):
        rule = experts(Sampler(temperature=temperature))
        seen = [rule.seen(side) for side in (device, cloud)]
        weights = side_weights(*(relevance for _, relevance, _ in seen))
        a, b = (Candidate(0, Distribution.from_dense(p)) for p, *_ in seen)
        tokens = np.array([rule.target(step, a, b, weights) for step in range(steps)])
        together = scores(device, cloud)
        if temperature == 0:
            assert tokens == together.argmax()
            continue
        law = np.exp((together - together.max()) / temperature)
        assert fits(tokens, law / law.sum())


def test_a_token_that_no_codec_lists_has_the_larger_density() -> None:
    listed = [Distribution(np.array([place]), np.array([0.6]), 0.4, V) for place in (0, 3)]
    found = experts().combined(listed, (0.75, 0.25))
    dense = np.maximum(0.75 * listed[0].to_dense(), 0.25 * listed[1].to_dense())
    assert found.to_dense() == pytest.approx(dense / dense.sum())
