"""C-SQS's threshold: Theorem 2 whatever the distributions are, and backtracking."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import (
    ConformalThreshold,
    Distribution,
    LatticePoint,
    Step,
    backtrack,
    codec,
    total_variation,
)
from dragonrt.distributions.lattice import theorem2_bound

VOCABULARY = 40
CODEC = codec("csqs:0.5:100", VOCABULARY)


def just_below(beta: float) -> NDArray[np.float64]:
    """The adversary's distribution: as much mass as possible just below the threshold."""
    each = min(max(beta * 0.999, 1 / VOCABULARY), 1.0)
    q = np.full(VOCABULARY, 0.0)
    whole = min(int(1 / each), VOCABULARY)
    q[:whole] = each
    q[-1] += 1 - q.sum()
    adversary: NDArray[np.float64] = np.abs(q) / np.abs(q).sum()
    return adversary


def run(
    q: NDArray[np.float64] | None, threshold: ConformalThreshold, tokens: int, seed: int
) -> tuple[list[float], ConformalThreshold]:
    """The masses dropped over so many tokens (`q` None: the adversary or a random one by turns)."""
    rng = np.random.default_rng(seed)
    dropped = []
    for _ in range(tokens):
        drawn = rng.dirichlet(np.full(VOCABULARY, 10.0 ** rng.integers(-2, 2)))
        next_q = q if q is not None else just_below(threshold.beta) if rng.random() < 0.7 else drawn
        dropped.append(CODEC.quantize(next_q, Step(threshold=threshold.beta)).dropped)
        threshold = threshold.after(dropped[-1])
    return dropped, threshold


@pytest.mark.parametrize("eta", [0.001, 0.05, 1.0])
@pytest.mark.parametrize("beta_1", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("alpha", [0.0005, 0.2])
def test_theorem_2(eta: float, beta_1: float, alpha: float) -> None:
    """At every T, against the adversary mixed with random distributions, and against uniform."""
    for q in (None, np.full(VOCABULARY, 1 / VOCABULARY)):
        start = ConformalThreshold(beta_1, eta, alpha)
        dropped, end = run(q, start, 60, seed=7)
        for tokens in range(1, len(dropped) + 1):
            assert np.mean(dropped[:tokens]) <= theorem2_bound(tokens, beta_1, eta, alpha)
        identity = alpha + (beta_1 - end.beta) / (eta * len(dropped))  # SQS Lemma 2
        assert np.mean(dropped) == pytest.approx(identity, abs=1e-9)
        assert end.beta >= -eta * (1 - alpha)  # SQS Lemma 4, the half that Theorem 2 needs


@pytest.mark.slow
def test_a_horizon_divides_both_rates_by_its_root() -> None:
    """SQS App. A.3: η and α of the order of 1/√T."""
    assert ConformalThreshold.first(0.1, 0.5, 0.25, 100) == ConformalThreshold(0.1, 0.05, 0.025)
    assert ConformalThreshold.first(0.1, 0.5, 0.25, None) == ConformalThreshold(0.1, 0.5, 0.25)


def test_the_bound_by_hand() -> None:
    assert theorem2_bound(1000, 0.1, 0.001, 0.0005) == pytest.approx(0.0005 + 1.1000005)
    assert theorem2_bound(10, -0.2, 0.5, 0.1) == pytest.approx(0.1 + 1.25 / 5)


def test_one_update() -> None:
    assert ConformalThreshold(0.01).after(0.0105).beta == pytest.approx(0.01 - 0.001 * 0.01)
    assert ConformalThreshold(0.01).after(0.0).beta > 0.01


MASSES = st.lists(st.floats(0, 1), max_size=12)


@given(MASSES, st.integers(0, 12), st.floats(-0.1, 1))
def test_backtracking_forgets_what_was_rejected(
    dropped: list[float], accepted: int, beta: float
) -> None:
    """It equals a run that never drafted beyond the new token, whatever was drafted there."""
    accepted = min(accepted, len(dropped))
    start = ConformalThreshold(beta, eta=0.05, alpha=0.1)
    stood = dropped[: accepted + 1]
    if stood and accepted == len(dropped):
        stood.append(stood[-1])
    recomputed = start
    for mass in stood:
        recomputed = recomputed.after(mass)
    assert backtrack(start, dropped, accepted) == recomputed


def test_a_batch_that_stands_whole_takes_the_new_tokens_mass_where_it_is_known() -> None:
    start = ConformalThreshold(0.2, eta=0.5, alpha=0.1)
    drafted = start.after(0.3).after(0.4)
    assert backtrack(start, [0.3, 0.4], 2) == drafted.after(0.4)
    assert backtrack(start, [0.3, 0.4, 0.05], 2) == drafted.after(0.05)
    assert backtrack(start, [0.3, 0.4], 0) == start.after(0.3)
    assert backtrack(start, [], 0) == start


@given(st.integers(0, 2**32), st.sampled_from([None, 0.001, 0.03, 0.2]), st.integers(1, 200))
def test_theorem_1(seed: int, threshold: float | None, resolution: int) -> None:
    """TV(q̂, p), by which a token is rejected, is at most TV(q, p) + dropped mass + K/(4ℓ)."""
    rng = np.random.default_rng(seed)
    q, p = (rng.dirichlet(np.full(VOCABULARY, 0.2)) for _ in range(2))
    quantized = CODEC.quantize(q, Step(0, resolution, threshold))
    assert isinstance(quantized.code, LatticePoint)
    target = Distribution.from_dense(p)
    discrepancy = total_variation(Distribution.from_dense(q), target)
    lattice = quantized.code.ids.size / (4 * resolution)
    bound = discrepancy + quantized.dropped + lattice
    assert total_variation(quantized.distribution, target) <= bound + 1e-12
