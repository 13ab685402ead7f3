"""The rules: their statistics, their acceptance, and what they do at the edges."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from typing_extensions import override

from dragonrt.distributions import Distribution, codec
from dragonrt.errors import SamplingError
from dragonrt.sampling.noise import Noise, Purpose, race
from dragonrt.sampling.rules import (
    Candidate,
    VerifyResult,
    expected_acceptance_algorithm1,
    relevance_weights,
    renormalise,
    residual,
    rule,
    side_weights,
    speculative_rule,
    token_acceptance,
)
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from scripts.papers.theory import acceptance_probability, expected_acceptance_coupled

DEVICE = np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0.0])
CLOUD = np.array([0.05, 0.3, 0.15, 0.3, 0.1, 0.1])


def fits(tokens: NDArray[np.int64], p: NDArray[np.float64]) -> bool:
    counts = np.bincount(tokens, minlength=p.size)
    possible = p > 0
    if counts[~possible].any():
        return False
    if possible.sum() == 1:
        return True
    return bool(stats.chisquare(counts[possible], p[possible] * len(tokens)).pvalue > 1e-3)


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

    def test_weights_are_scaled_and_none_is_refused(self) -> None:
        left = renormalise((0.5, 0.0, 0.25))
        assert left == pytest.approx((2 / 3, 0, 1 / 3))
        with pytest.raises(SamplingError):
            renormalise((0.0, 0.0))


def test_what_is_not_listed_is_accepted_as_often_as_what_is() -> None:
    """The expectation of distributions with a rest is that of all their probabilities."""
    own, other = (codec("topk:2:residual", 6).quantize(p).distribution for p in (DEVICE, CLOUD))
    assert own.rest > 0 < other.rest
    a, b = (Distribution.from_dense(each.to_dense()) for each in (own, other))
    for eta, gamma in ((0.3, 0.5), (0.65, 0.0), (1.0, 0.2)):
        found = expected_acceptance_algorithm1(own, other, eta, gamma)
        assert found == pytest.approx(expected_acceptance_algorithm1(a, b, eta, gamma))


@pytest.mark.parametrize("make", [rule, speculative_rule])
def test_an_unknown_rule(make: Callable[[str, Noise, Sampler], object]) -> None:
    with pytest.raises(SamplingError):
        make("algorithm2", Noise(0), Sampler())


NAMES = ["rejection", "coupled", "sample-quantize"]
EXACT = ["rejection", "coupled"]
VOCABULARY = 16


@pytest.mark.parametrize("name", EXACT)
def test_the_token_after_a_block_follows_the_target(name: str) -> None:
    noise, steps = Noise(5), range(4_000)
    each = speculative_rule(name, noise, Sampler())
    drafted, p = np.random.default_rng(11).dirichlet(np.full(VOCABULARY, 0.6), 2)
    q = codec("topk:8:residual", VOCABULARY).quantize(drafted).distribution
    target = Distribution.from_dense(p)
    bonus = np.array([each.verify(step, [], [], [p].__getitem__).token for step in steps])
    guesses = np.array([each.guess(step, q) for step in steps])
    assert fits(bonus, p)
    assert bonus.tolist() == [race(target, noise.exponentials(step, VOCABULARY)) for step in steps]
    expected = expected_acceptance_coupled(target, q)
    error = math.sqrt(expected * (1 - expected) / len(steps))
    assert abs(float((bonus == guesses).mean()) - expected) < 4 * error


@pytest.mark.parametrize("name", NAMES)
def test_temperature_zero_is_the_most_likely_token(name: str) -> None:
    each = speculative_rule(name, Noise(1), Sampler(temperature=0))
    rng = np.random.default_rng(1)
    coder = codec("dense:fp16", 8)
    for step in range(50):
        p_raw, q_raw, after = rng.dirichlet(np.full(8, 0.5), 3)
        q = coder.quantize(each.shape(q_raw)).distribution
        p = [each.shape(p_raw), each.shape(after)]
        x = each.draft(step, q)
        assert x == each.guess(step, q) == q_raw.argmax()
        verdict = each.verify(step, [x], [q], p.__getitem__)
        stands = x == p_raw.argmax()
        assert verdict == VerifyResult(int(stands), int((after if stands else p_raw).argmax()))


def test_the_target_is_looked_up_only_as_far_as_it_is_needed() -> None:
    class Row(list[NDArray[np.float64]]):
        @override
        def __getitem__(self, position):  # type: ignore[no-untyped-def]
            assert position == 0, "the first token is refused"
            return super().__getitem__(position)

    p, q = np.array([0.0, 1.0]), Distribution.from_dense(np.array([1.0, 0.0]))
    for name in EXACT:
        each = speculative_rule(name, Noise(0), Sampler())
        assert each.verify(0, [0, 0], [q, q], Row([p, p, p]).__getitem__) == VerifyResult(0, 1)


def test_distributions_equal_up_to_rounding_keep_the_draft() -> None:
    class Refusing(Noise):
        __slots__ = ()

        @override
        def uniform(self, purpose: Purpose, side: Side | None, step: int) -> float:
            return 1 - 2.0**-53

    p = np.array([0.1, 0.2, np.nextafter(0.7, 0)])
    q = Distribution(np.arange(3), np.array([0.1, 0.2, 0.7]), 0.0, 3)
    assert not residual(p, q).any()
    assert token_acceptance(p[2], 0.7) <= 1 - 2.0**-53
    each = speculative_rule("rejection", Refusing(0), Sampler())
    assert each.verify(0, [2], [q], [p, p].__getitem__).accepted == 1


def test_a_token_that_the_quantized_distribution_lost_stands() -> None:
    q = Distribution(np.array([0]), np.ones(1), 0.0, 2)
    each = speculative_rule("sample-quantize", Noise(0), Sampler())
    assert not each.drafts_from_quantized
    assert each.verify(0, [1], [q], lambda _: np.array([1.0, 0.0])).accepted == 1


def test_rejection_needs_the_distributions() -> None:
    each = speculative_rule("rejection", Noise(0), Sampler())
    with pytest.raises(SamplingError):
        each.verify(0, [0], None, lambda _: np.ones(1))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[NDArray[np.float64], Distribution]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(2, 12))
    p, q = rng.dirichlet(np.full(size, draw(st.sampled_from([0.05, 0.5, 5.0]))), 2)
    coder = codec(draw(st.sampled_from(["dense:fp32", "topk:2:residual", "topk:3:renorm"])), size)
    return p, coder.quantize(q).distribution


@given(pairs())
def test_what_stands_and_what_is_drawn_again_make_the_target(
    pair: tuple[NDArray[np.float64], Distribution],
) -> None:
    p, q = pair
    before = p.copy()
    of_q = q.to_dense()
    stands = of_q * [token_acceptance(a, b) for a, b in zip(p, of_q, strict=True)]
    again = residual(p, q)
    assert np.array_equal(p, before)
    assert np.allclose(stands + again, p, rtol=0, atol=1e-12)
    expected = acceptance_probability(Distribution.from_dense(p), q)
    assert stands.sum() == pytest.approx(expected, abs=1e-12)


def test_coupled_decides_the_targets_race_for_any_draft() -> None:
    noise, p = Noise(3), np.random.default_rng(4).dirichlet(np.ones(5), 4)
    each = speculative_rule("coupled", noise, Sampler())
    for first in range(0, 200, 4):
        races = [(row / noise.exponentials(first + at, 5)).argmax() for at, row in enumerate(p)]
        assert each.verify(first, races[:3], None, p.__getitem__) == VerifyResult(3, int(races[3]))
        for at in range(3):
            wrong = [*races[:at], (races[at] + 1) % 5, *races[at + 1 : 3]]
            assert each.verify(first, wrong, None, p.__getitem__) == VerifyResult(
                at, int(races[at])
            )


@pytest.mark.parametrize("name", ["rejection", "sample-quantize"])
def test_rules_that_accept_by_the_ratio_draft_with_own_noise(name: str) -> None:
    class Unshared(Noise):
        __slots__ = ()

        @override
        def exponentials(
            self, step: int, vocabulary: int, ids: NDArray[np.int64] | None = None
        ) -> NDArray[np.float64]:
            raise AssertionError("the race of this step may decide the token after a block only")

    noise = Unshared(1)
    rule = speculative_rule(name, noise, Sampler())
    q, p = np.array([0.5, 0.4, 0.09, 0.01]), np.array([0.05, 0.55, 0.1, 0.3])
    sent = Distribution.from_dense(q)
    for step in range(50):
        x = rule.draft(step, sent)
        only = np.eye(q.size)[0]  # a certain token behind the block needs no noise
        rule.verify(step, [x], [sent], [p, only].__getitem__)
