"""The two rules: their statistics, their acceptance, and what they do at the edges."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dragonrt.distributions import Distribution, codec
from dragonrt.errors import SamplingError
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import (
    Candidate,
    Rule,
    expected_acceptance_algorithm1,
    relevance_weights,
    renormalise,
    rule,
    side_weights,
)
from dragonrt.sampling.samplers import Sampler

SAMPLERS = [
    Sampler(),
    Sampler(temperature=0.6),
    Sampler(top_k=3),
    Sampler(top_p=0.7),
    Sampler(min_p=0.3),
    Sampler(temperature=1.4, top_k=4, top_p=0.9, min_p=0.05),
]
WEIGHTS = (0.65, 0.35)
DEVICE = np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0.0])
CLOUD = np.array([0.05, 0.3, 0.15, 0.3, 0.1, 0.1])


def run(each: Rule, steps: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Both drafts and the target of every step, distributions as they are received."""
    coder = codec("dense:fp32", DEVICE.size)
    device, cloud = (coder.quantize(each.shape(p)).distribution for p in (DEVICE, CLOUD))
    tokens = np.empty((3, steps), dtype=np.int64)
    for step in range(steps):
        a = Candidate(each.draft("device", step, device), device)
        b = Candidate(each.draft("cloud", step, cloud), cloud)
        tokens[:, step] = a.token, b.token, each.target(step, a, b, WEIGHTS)
    return tokens[0], tokens[1], tokens[2]


def fits(tokens: NDArray[np.int64], p: NDArray[np.float64]) -> bool:
    counts = np.bincount(tokens, minlength=p.size)
    possible = p > 0
    if counts[~possible].any():
        return False
    if possible.sum() == 1:
        return True
    return bool(stats.chisquare(counts[possible], p[possible] * len(tokens)).pvalue > 1e-3)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_coupled_races_what_the_sampler_leaves_of_the_mixture(sampler: Sampler) -> None:
    x_device, x_cloud, x = run(rule("coupled", Noise(2024), sampler), 300)
    mixed = WEIGHTS[0] * DEVICE + WEIGHTS[1] * CLOUD
    for tokens, p in ((x_device, DEVICE), (x_cloud, CLOUD), (x, mixed)):
        law = sampler.dense(p)
        races = [(law / Noise(2024).exponentials(step, law.size)).argmax() for step in range(300)]
        assert tokens.tolist() == races


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coupled", "algorithm1"])
def test_the_keyed_noise_serves_both_rules(name: str) -> None:
    x_device, x_cloud, x = run(rule(name, Noise(77), Sampler()), 5_000)
    assert fits(x_device, DEVICE)
    assert fits(x_cloud, CLOUD)
    assert fits(x, WEIGHTS[0] * DEVICE + WEIGHTS[1] * CLOUD)
    # Consecutive targets are independent of each other.
    pairs = np.histogram2d(x[:-1], x[1:], bins=np.arange(7) - 0.5)[0]
    assert stats.chi2_contingency(pairs).pvalue > 1e-3


@pytest.mark.parametrize("name", ["coupled", "algorithm1"])
@pytest.mark.parametrize("sampler", [*SAMPLERS, Sampler(temperature=0)], ids=str)
def test_the_order_of_steps_does_not_matter(name: str, sampler: Sampler) -> None:
    def tokens(order: list[int]) -> dict[int, tuple[int, int, int]]:
        each = rule(name, Noise(5), sampler)
        device, cloud = (Distribution.from_dense(each.shape(p)) for p in (DEVICE, CLOUD))
        result = {}
        for step in order:
            b = Candidate(each.draft("cloud", step, cloud), cloud)
            a = Candidate(each.draft("device", step, device), device)
            result[step] = a.token, b.token, each.target(step, a, b, WEIGHTS)
        return result

    steps = list(range(100)) * 2
    shuffled = random.Random(1).sample(steps, len(steps))
    assert tokens(steps) == tokens(shuffled)


class TestTemperatureZero:
    @pytest.mark.parametrize("name", ["coupled", "algorithm1"])
    def test_the_target_is_the_most_likely_of_the_mixture(self, name: str) -> None:
        each = rule(name, Noise(1), Sampler(temperature=0))
        p, q = np.array([0.5, 0.4, 0.1]), np.array([0.0, 0.45, 0.55])
        assert np.array_equal(each.shape(p), p)
        device, cloud = Distribution.from_dense(p), Distribution.from_dense(q)
        a = Candidate(each.draft("device", 0, device), device)
        b = Candidate(each.draft("cloud", 0, cloud), cloud)
        assert (a.token, b.token) == (0, 2)
        assert each.target(0, a, b, (0.5, 0.5)) == 1

    @pytest.mark.parametrize("name", ["coupled", "algorithm1"])
    def test_ties_go_to_the_lowest_id(self, name: str) -> None:
        each = rule(name, Noise(1), Sampler(temperature=0))
        device = Distribution(np.array([2, 3]), np.array([0.5, 0.5]), 0.0, 5)
        cloud = Distribution(np.array([1, 4]), np.array([0.5, 0.5]), 0.0, 5)
        assert each.draft("device", 9, device) == 2
        assert each.target(9, Candidate(2, device), Candidate(1, cloud), (0.5, 0.5)) == 1


class TestWeights:
    @given(st.lists(st.floats(-300, 300), min_size=1, max_size=5), st.floats(-1e3, 1e3))
    def test_softmax(self, h: list[float], shift: float) -> None:
        weights = relevance_weights(h)
        assert math.fsum(weights) == pytest.approx(1, abs=1e-12)
        assert math.log(weights[0] / weights[-1]) == pytest.approx(h[0] - h[-1], abs=1e-9)
        assert relevance_weights([x + shift for x in h]) == pytest.approx(weights, abs=1e-9)

    def test_a_side_without_documents_has_no_weight(self) -> None:
        assert relevance_weights([0.0, -math.inf, 0.0]) == (0.5, 0.0, 0.5)
        assert side_weights(1.0, -math.inf) == (1.0, 0.0)
        assert side_weights(-1e308, 1e308) == (0.0, 1.0)

    @pytest.mark.parametrize("h", [[], [math.nan, 0.0], [0.0, math.nan], [-math.inf] * 2])
    def test_no_softmax(self, h: list[float]) -> None:
        with pytest.raises(SamplingError):
            relevance_weights(h)

    def test_those_left_out_have_none(self) -> None:
        left = renormalise((0.5, 0.25, 0.25), (True, False, True))
        assert left == pytest.approx((2 / 3, 0, 1 / 3))
        with pytest.raises(SamplingError):
            renormalise((1.0, 0.0), (False, True))


def test_what_is_not_listed_is_accepted_as_often_as_what_is() -> None:
    """The expectation of distributions with a rest is that of all their probabilities."""
    own, other = (codec("topk:2:residual", 6).quantize(p).distribution for p in (DEVICE, CLOUD))
    assert own.rest > 0 < other.rest
    a, b = (Distribution.from_dense(each.to_dense()) for each in (own, other))
    for eta, gamma in ((0.3, 0.5), (0.65, 0.0), (1.0, 0.2)):
        found = expected_acceptance_algorithm1(own, other, eta, gamma)
        assert found == pytest.approx(expected_acceptance_algorithm1(a, b, eta, gamma))


def test_an_unknown_rule() -> None:
    with pytest.raises(SamplingError):
        rule("algorithm2", Noise(0), Sampler())
