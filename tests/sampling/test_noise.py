"""Keyed randomness: pure in its key, well distributed, fixed; and races that read little of it."""

import itertools
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Philox
from numpy.typing import NDArray
from scipy import stats
from typing_extensions import override

from dragonrt.distributions import Distribution
from dragonrt.errors import SamplingError
from dragonrt.sampling.noise import Noise, Purpose, philox_words, race, race_at, race_dense
from dragonrt.side import Side

SIDES: tuple[Side | None, ...] = (None, "device", "cloud")
Call = tuple[Purpose | None, Side | None, int]


def test_the_numbers_are_part_of_the_protocol() -> None:
    """Another version that draws other numbers cannot talk to this one."""
    noise = Noise(2**63 + 12345)
    assert noise.uniform(Purpose.DRAFT, "device", 0) == 0.4055043354729312
    assert noise.uniform(Purpose.CHOICE, None, 7) == 0.4851861133046028
    assert noise.exponentials(3, 4).tolist() == pytest.approx(
        [1.7979125014687407, 0.04783479168351747, 0.4386687802244964, 0.9099225524886462], rel=1e-14
    )


def test_every_key_has_its_own_number() -> None:
    keys = list(itertools.product(Purpose, SIDES, (0, 1, 2, 1000, 2**40)))
    numbers = {
        Noise(seed).uniform(purpose, side, step)
        for seed in (0, 1, 2**32, 2**64 - 1)
        for purpose, side, step in keys
    }
    assert len(numbers) == 4 * len(keys)


def test_the_order_of_calls_does_not_matter() -> None:
    calls: list[Call] = [
        *((Purpose.DRAFT, side, step) for side in SIDES[1:] for step in range(20)),
        *((Purpose.CHOICE, None, step) for step in range(20)),
        *((None, None, step) for step in range(20)),
    ]

    def results(order: list[Call]) -> dict[Call, object]:
        noise = Noise(9)
        return {
            (purpose, side, step): (
                noise.exponentials(step, 5).tobytes()
                if purpose is None
                else noise.uniform(purpose, side, step)
            )
            for purpose, side, step in order
        }

    shuffled = calls * 2
    random.Random(3).shuffle(shuffled)
    assert results(calls) == results(shuffled)


def test_exponentials_do_not_depend_on_what_is_cached() -> None:
    noise = Noise(4)
    first = noise.exponentials(0, 300).copy()
    for step in range(200):
        noise.exponentials(step, 300)
    assert np.array_equal(noise.exponentials(0, 300), first)


def test_all_sessions_together_keep_a_bounded_number_of_races() -> None:
    noises = [Noise(seed) for seed in range(5)]
    tracemalloc.start()
    for step in range(15):
        for each in noises:
            each.exponentials(step, 151_936)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 66 << 20


def test_a_token_keeps_its_number_in_another_vocabulary() -> None:
    noise = Noise(4)
    small = noise.exponentials(8, 100).copy()
    assert np.allclose(noise.exponentials(8, 1000)[:100], small, rtol=1e-15, atol=0)


def test_a_callers_change_of_its_exponentials_is_local() -> None:
    noise = Noise(1)
    race = noise.exponentials(0, 10)
    race[0] = 1.0
    assert noise.exponentials(0, 10)[0] == Noise(1).exponentials(0, 10)[0] != 1.0


@given(
    seed=st.integers(0, 2**64 - 1),
    step=st.integers(0, 2**63 - 1),
    first=st.sampled_from([0, 2**31 - 300, 2**34 - 8]),
    places=st.sets(st.integers(0, 299), min_size=1),
)
def test_single_words_are_those_of_the_stream(
    seed: int, step: int, first: int, places: set[int]
) -> None:
    key = (seed, Purpose.RACE << 8)
    counter = np.array((first // 4, step, 0, 0), dtype=np.uint64)
    stream = Philox(key=np.array(key, dtype=np.uint64), counter=counter).random_raw(300)
    ids = np.array(sorted(places))
    assert np.array_equal(philox_words(key, step, first + ids), stream[ids])


@pytest.mark.parametrize("vocabulary", [512, 50_257, 151_936])
def test_few_tokens_have_the_numbers_of_the_whole_vocabulary(vocabulary: int) -> None:
    ids = np.array([0, 1, 2, 3, 4, 7, vocabulary // 2, vocabulary - 1])
    noise = Noise(vocabulary)  # of which nothing is kept yet
    few = noise.exponentials(3, vocabulary, ids)
    whole = noise.exponentials(3, vocabulary)
    for found in (few, noise.exponentials(3, vocabulary, ids)):
        assert np.allclose(found, whole[ids], rtol=1e-15, atol=0)


@pytest.mark.parametrize("bound", [0.0, 1e-9, 1e-3, 0.5, 5.0, 40.0, 1e6])
def test_the_tokens_below_a_bound(bound: float) -> None:
    race = Noise(3).exponentials(1, 5000)
    near = Noise(3).below(1, 5000, bound)
    assert set(np.flatnonzero(race < bound)) <= set(near.tolist())
    assert (np.diff(near) > 0).all()
    assert (race[near] < bound + 1e-8 * np.exp(race[near])).all()


def test_threads_see_the_same_numbers() -> None:
    noise, alone = Noise(5), Noise(5)
    with ThreadPoolExecutor(4) as pool:
        races = list(pool.map(lambda i: noise.exponentials(i % 70, 64), range(400)))
    assert all(np.array_equal(race, alone.exponentials(i % 70, 64)) for i, race in enumerate(races))


def test_exponentials_are_exponential() -> None:
    within = Noise(11).exponentials(0, 100_000)
    assert (within > 0).all()
    assert stats.kstest(within, "expon").pvalue > 1e-3
    noise = Noise(12)
    across = np.array([noise.exponentials(step, 2) for step in range(4000)])
    assert stats.kstest(across[:, 0], "expon").pvalue > 1e-3
    assert abs(np.corrcoef(across[:, 0], across[:, 1])[0, 1]) < 0.06
    assert abs(np.corrcoef(across[1:, 0], across[:-1, 0])[0, 1]) < 0.06


def test_uniforms_are_uniform() -> None:
    noise = Noise(13)
    device = [noise.uniform(Purpose.DRAFT, "device", step) for step in range(4000)]
    cloud = [noise.uniform(Purpose.DRAFT, "cloud", step) for step in range(4000)]
    assert stats.kstest(device, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(device, cloud)[0, 1]) < 0.06


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range(seed: int) -> None:
    with pytest.raises(SamplingError):
        Noise(seed)


def test_every_part_of_a_question_has_a_seed_of_its_own() -> None:
    seeds = [[Noise(seed).seed_of(part) for part in range(4)] for seed in (0, 1, 2**64 - 1)]
    assert [first for first, *_ in seeds] == [0, 1, 2**64 - 1]
    assert len({each for several in seeds for each in several}) == 12
    assert all(0 <= each < 2**64 for several in seeds for each in several)
    assert Noise(1).seed_of(2) == seeds[1][2]


def zipf(vocabulary: int, exponent: float, seed: int) -> NDArray[np.float64]:
    p = np.arange(1, vocabulary + 1) ** -exponent
    return np.random.default_rng(seed).permutation(p / p.sum())


def whole(p: NDArray[np.floating], step: int) -> int:
    """The definition: the first argmax over all tokens, with all their exponentials."""
    return int((p / Noise(5).exponentials(step, p.size)).argmax())


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 4.0])
@pytest.mark.parametrize(
    "vocabulary", [2, 8192, 16_385, pytest.param(151_936, marks=pytest.mark.slow)]
)
def test_the_winner_is_that_of_the_whole_race(vocabulary: int, exponent: float) -> None:
    for step in range(30):
        p = zipf(vocabulary, exponent, step)
        winner = whole(p, step)
        single = p.astype(np.float32)
        truncated = np.where(p >= min(1e-5, 0.5 / vocabulary), p, 0.0)
        unlisted = Distribution.from_dense(truncated)
        rest = Distribution(unlisted.ids, unlisted.probabilities, 0.0, vocabulary)
        assert race_dense(Noise(5), step, p) == winner
        assert race_at(Noise(5), step, Distribution.from_dense(p)) == winner
        assert race_dense(Noise(5), step, single) == whole(single, step)
        assert race_dense(Noise(5), step, truncated) == whole(truncated, step)
        assert race_at(Noise(5), step, rest) == whole(truncated, step)


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
