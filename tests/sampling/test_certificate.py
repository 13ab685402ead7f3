"""A certificate never names a token that the full mixture does not decide, and always ends."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dragonrt.distributions import codec, decode_distribution, encode_distribution
from dragonrt.distributions.race_codec import (
    LARGEST_TAU,
    OwnRace,
    RaceEntries,
    decode_probabilities,
    encode_probabilities,
)
from dragonrt.sampling.aggregation import Candidate, Coupled, side_weights
from dragonrt.sampling.certificate import SMALL_TOP_K, certifies
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler

Sent = tuple[OwnRace, RaceEntries]

SAMPLERS = [
    Sampler(),
    Sampler(0.8),
    Sampler(0.3),
    Sampler(0.0),
    Sampler(1.3, min_p=0.2),
    Sampler(1.0, top_k=3),
    Sampler(0.7, top_k=5, min_p=0.05),
    Sampler(0.0, top_k=5, top_p=0.5, min_p=0.05),
]


def sent(by: Coupled, step: int, p: NDArray[np.float64], name: str, tau: float) -> Sent:
    code = codec(name, p.size)
    quantized = code.quantize(p, by.listing(step, p, tau))
    read = decode_distribution(code, encode_distribution(code, quantized))
    assert isinstance(quantized.distribution, OwnRace)
    assert isinstance(read, RaceEntries)
    return quantized.distribution, read


def decided(
    by: Coupled, step: int, own: Sent, other: Sent, weights: tuple[float, float]
) -> tuple[int, int]:
    """The winner as the side with `own` finds it, and how many requests that takes."""
    known = other[1]
    for requests in range(4):
        found = by.certified(step, own[0], known, weights)
        if found.winner is not None:
            assert found.missing.size == 0
            return found.winner, requests
        wanted = np.sort(found.missing[:64])
        assert wanted.size > 0
        assert np.isin(wanted, own[0].listed).all(), "what else is asked for may be forgotten"
        assert not np.isin(wanted, known.ids).any()
        known = decode_probabilities(known, wanted, encode_probabilities(other[0], wanted))
    raise AssertionError("asked again and again")


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sampler=st.sampled_from(SAMPLERS),
    vocabulary=st.sampled_from([2, 5, 30, 300]),
    sharpness=st.sampled_from([0.0, 0.5, 2.0, 8.0]),
    disagreement=st.sampled_from([0.0, 0.5, 3.0]),
    taus=st.tuples(*[st.floats(1e-4, LARGEST_TAU)] * 2),
    tilt=st.sampled_from([-40.0, -2.0, 0.0, 1.0]),
    name=st.sampled_from(["race", "race:0.1:fp32"]),
)
@example(410, Sampler(1.0, top_k=3), 30, 2.0, 0.5, (0.25, 0.3125), 1.0, "race")
def test_both_sides_find_the_winner_of_the_full_mixture(
    seed: int,
    sampler: Sampler,
    vocabulary: int,
    sharpness: float,
    disagreement: float,
    taus: tuple[float, float],
    tilt: float,
    name: str,
) -> None:
    """Whatever is listed: its definition is the race of all entries, as the oracle runs it."""
    random = np.random.default_rng(seed)
    by, step = Coupled(Noise(seed), sampler), seed % 7
    shared = sharpness * random.standard_normal(vocabulary)
    both = [np.exp(shared + disagreement * random.standard_normal(vocabulary)) for _ in range(2)]
    both[1][random.random(vocabulary) < 0.2] = 1e-30
    device, cloud = (
        sent(by, step, p / p.sum(), name, tau) for p, tau in zip(both, taus, strict=True)
    )
    weights = side_weights(tilt, 0.0)
    whole = by.target(step, Candidate(0, device[0]), Candidate(0, cloud[0]), weights)
    found, asked = decided(by, step, device, cloud, weights)
    assert found == whole
    assert asked <= 1 + (sharpness < 1), "but where more may win than a message names"
    assert decided(by, step, cloud, device, (weights[1], weights[0]))[0] == whole
    alone = by.target(step, Candidate(0, device[0]), Candidate(0, device[0]), (0.5, 0.5))
    assert by.draft("device", step, device[0]) == alone


@pytest.mark.parametrize(
    ("sampler", "proved"),
    [
        (Sampler(), 280),
        (Sampler(0.5), 264),
        (Sampler(1.0, top_k=1), 143),
        (Sampler(1.0, top_k=2), 215),
        (Sampler(0.7, top_k=5, min_p=0.05), 283),
        (Sampler(1.3, min_p=0.2), 294),
        (Sampler(0.7, min_p=0.8), 161),
    ],
)
def test_no_certificate_of_the_first_lists_is_wrong_and_most_are_given(
    sampler: Sampler, proved: int
) -> None:
    """Lists as short as may be, of near distributions: what is doubtful decides often."""
    random, by = np.random.default_rng(12), Coupled(Noise(1), sampler)
    weights, found = (0.5, 0.5), 0
    for step in range(300):
        p, q = np.exp(random.standard_normal((2, 12)))
        device, cloud = (sent(by, step, each / each.sum(), "race", LARGEST_TAU) for each in (p, q))
        winner = by.certified(step, device[0], cloud[1], weights).winner
        whole = by.target(step, Candidate(0, device[0]), Candidate(0, cloud[0]), weights)
        assert winner in (None, whole)
        found += winner is not None
    assert found >= proved


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(0.6), Sampler(1.0, min_p=0.15)])
def test_the_decided_tokens_have_the_law_of_the_mixture(sampler: Sampler) -> None:
    random = np.random.default_rng(3)
    p, q = random.dirichlet(np.ones(12)), random.dirichlet(np.ones(12))
    weights, count = (0.3, 0.7), 2000
    by = Coupled(Noise(11), sampler)
    seen: Counter[int] = Counter()
    for step in range(count):
        device, cloud = (sent(by, step, each, "race", 0.35) for each in (p, q))
        seen[decided(by, step, device, cloud, weights)[0]] += 1
    law = sampler.dense(weights[0] * p + weights[1] * q)
    likely = np.flatnonzero(law)
    assert set(seen) <= set(likely.tolist())
    observed = [seen[token] for token in likely.tolist()]
    assert stats.chisquare(observed, count * law[likely]).pvalue > 1e-3


def test_which_samplers_can_be_certified() -> None:
    assert all(certifies(sampler) for sampler in SAMPLERS)
    assert not certifies(Sampler(1.0, top_p=0.9))
    assert not certifies(Sampler(1.0, top_k=SMALL_TOP_K + 1))
