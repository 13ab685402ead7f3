"""Races that look at little of the noise have the winner of the race of all tokens, always."""

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import Distribution
from dragonrt.sampling.noise import Noise, race, race_at, race_dense

LARGE = 151_936


def zipf(vocabulary: int, exponent: float, seed: int) -> NDArray[np.float64]:
    p = np.arange(1, vocabulary + 1) ** -exponent
    return np.random.default_rng(seed).permutation(p / p.sum())


def whole(p: NDArray[np.floating], step: int) -> int:
    """The definition: the first argmax over all tokens, with all their exponentials."""
    return int((p / Noise(5).exponentials(step, p.size)).argmax())


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 4.0])
@pytest.mark.parametrize("vocabulary", [2, 8192, 16_385])
def test_the_winner_is_that_of_the_whole_race(vocabulary: int, exponent: float) -> None:
    for step in range(30):
        p = zipf(vocabulary, exponent, step)
        winner = whole(p, step)
        single = p.astype(np.float32)
        truncated = np.where(p >= 1e-5, p, 0.0)
        unlisted = Distribution.from_dense(truncated)
        rest = Distribution(unlisted.ids, unlisted.probabilities, 0.0, vocabulary)
        assert race_dense(Noise(5), step, p) == winner
        assert race_at(Noise(5), step, Distribution.from_dense(p)) == winner
        assert race_dense(Noise(5), step, single) == whole(single, step)
        assert race_dense(Noise(5), step, truncated) == whole(truncated, step)
        assert race_at(Noise(5), step, rest) == whole(truncated, step)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.6])
def test_the_winner_among_the_tokens_of_a_large_vocabulary(exponent: float) -> None:
    for step in range(40):
        p = zipf(LARGE, exponent, step)
        assert race_dense(Noise(5), step, p) == whole(p, step)
        few = np.where(p >= np.sort(p)[-50], p, 0.0)
        assert race_at(Noise(5), step, Distribution.from_dense(few)) == whole(few, step)


@pytest.mark.parametrize(
    ("vocabulary", "listed"), [(3, 1), (40, 30), (20_000, 64), (20_000, 17_000)]
)
@pytest.mark.parametrize("rest", [1e-12, 0.2, 0.999])
def test_the_tokens_that_are_not_listed_race_too(vocabulary: int, listed: int, rest: float) -> None:
    for step in range(30):
        rng = np.random.default_rng(step)
        ids = np.sort(rng.choice(vocabulary, listed, replace=False))
        p = Distribution(ids, rng.dirichlet(np.ones(listed)) * (1 - rest), rest, vocabulary)
        assert race_at(Noise(5), step, p) == race(p, Noise(5).exponentials(step, vocabulary))


def test_a_token_wins_with_hardly_any_mass() -> None:
    """One light token whose exponential is tiny: what no threshold of probabilities may drop."""

    class Lucky(Noise):
        __slots__ = ()
        tiny = 1e-12

        @override
        def exponentials(
            self, step: int, vocabulary: int, ids: NDArray[np.int64] | None = None
        ) -> NDArray[np.float64]:
            race = np.ones(vocabulary)
            race[4321] = self.tiny
            return race if ids is None else race[ids]

        @override
        def below(self, step: int, vocabulary: int, bound: float) -> NDArray[np.int64]:
            return np.flatnonzero(self.exponentials(step, vocabulary) < bound)

    p = np.full(20_000, 1e-11 / 19_999)
    p[17] = 1 - 1e-11
    p[4321] = 2e-12
    assert race_dense(Lucky(0), 0, p) == 4321
    p[4321] = 5e-13
    assert race_dense(Lucky(0), 0, p) == 17


def test_equal_scores_go_to_the_lowest_token() -> None:
    class Level(Noise):
        __slots__ = ()

        @override
        def exponentials(
            self, step: int, vocabulary: int, ids: NDArray[np.int64] | None = None
        ) -> NDArray[np.float64]:
            return np.ones(vocabulary if ids is None else ids.size)

        @override
        def below(self, step: int, vocabulary: int, bound: float) -> NDArray[np.int64]:
            return np.arange(vocabulary if bound > 1 else 0)

    p = np.full(20_000, 0.5 / 19_998)
    p[[3000, 40]] = 0.25
    assert race_dense(Level(0), 0, p) == 40
    assert race_dense(Level(0), 0, np.full(20_000, 1 / 20_000)) == 0
    for listed, winner in ((0, 0), (3, 0)):
        each = Distribution(np.array([listed]), np.array([2.0**-15]), 1 - 2.0**-15, 2**15)
        assert race_at(Level(0), 0, each) == winner
