"""The race codec: what is listed, what the bound promises, and what is refused."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragonrt.distributions import (
    Codec,
    CodecError,
    Step,
    codec,
    decode_distribution,
    encode_distribution,
)
from dragonrt.distributions.protocol import PLAIN
from dragonrt.distributions.race_codec import (
    OwnRace,
    RaceEntries,
    decode_probabilities,
    encode_probabilities,
)
from dragonrt.sampling.noise import Noise, RaceNoise
from tests.distributions.test_codec import VOCABULARY as V
from tests.distributions.test_codec import encoded, refuses_other_lengths, spread

NAMES = ("race", "race:0.3", "race:0.1:fp32")


def through(
    each: Codec, p: NDArray[np.floating[Any]], step: Step = PLAIN
) -> tuple[OwnRace, RaceEntries]:
    quantized = each.quantize(p, step)
    payload = encode_distribution(each, quantized)
    assert quantized.bits == 8 * len(payload)
    read = decode_distribution(each, payload, step)
    assert isinstance(quantized.distribution, OwnRace)
    assert isinstance(read, RaceEntries)
    return quantized.distribution, read


def at(seed: int, step: int, temperature: float) -> Step:
    return Step(step, noise=RaceNoise(Noise(seed), step, temperature))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("vocabulary", [V, 1 << 15])
def test_what_is_listed_is_exact_and_all_else_is_below_the_bound(
    name: str, temperature: float, vocabulary: int
) -> None:
    """Over large vocabularies, too, where only some of the scores are computed."""
    each = codec(name, vocabulary)
    for seed in range(6):
        p = spread(seed, vocabulary, 10.0 ** (seed % 3 - 3)).astype(np.float32)
        step = at(seed, 3, temperature)
        own, read = through(each, p, step)
        assert np.array_equal(read.ids, own.listed)
        assert read.probabilities.tolist() == [own.probability(token) for token in own.listed]
        assert step.noise is not None
        scores = own.to_dense() / step.noise(vocabulary)
        scores[own.listed] = 0
        assert scores.max() < read.ceiling(step.noise)
        assert abs(own.probabilities.sum() - 1) < 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_every_probability_is_rounded_finely_and_far_below_the_largest(name: str) -> None:
    p = np.array([0.7, 0.3 - 3e-14, 2e-14, 1e-14])
    own, _ = through(codec(name, 4), p)
    np.testing.assert_allclose(own.to_dense(), p, rtol=2.0**-11)


def test_ties_are_rounded_to_even() -> None:
    """Between 0.5 + 2^-11 and 0.5 + 2^-10, whose last bit of ten is 0."""
    p = 0.5 + 2.0**-11 + 2.0**-12
    own, _ = through(codec("race", 2), np.array([p, 1 - p]))
    assert own.probability(0) == 0.5 + 2.0**-10


def test_single_precision_is_that_of_the_dense_codec() -> None:
    p = spread(1).astype(np.float32)
    own, _ = through(codec("race:0.1:fp32", V), p)
    dense = codec("dense:fp32", V).quantize(p).distribution
    assert np.array_equal(own.probabilities, dense.probabilities)
    assert np.array_equal(own.ids, dense.ids)


def test_a_step_may_say_another_threshold() -> None:
    p = spread(2, concentration=1.0)
    each = codec("race:0.3", V)
    more, fewer = (through(each, p, Step(0, threshold=tau))[1] for tau in (0.01, 0.3))
    assert set(fewer.ids.tolist()) < set(more.ids.tolist())
    assert through(each, p, Step(0, threshold=0.9))[1].tau <= 0.35, "or no winner is on a list"
    everything, read = through(each, p, Step(0, threshold=0.0))
    assert read.ids.size == everything.ids.size


def test_what_was_not_listed_can_be_said_later() -> None:
    each = codec("race", V)
    own, read = through(each, spread(3, concentration=0.5))
    rest = np.setdiff1d(np.arange(V), own.listed)[::7]
    more = decode_probabilities(read, rest, encode_probabilities(own, rest))
    assert [more.probability(token) for token in rest] == [own.probability(t) for t in rest]
    assert [more.probability(t) for t in read.ids] == read.probabilities.tolist()
    assert more.ceiling(None) == read.ceiling(None)
    assert decode_probabilities(read, read.ids, encode_probabilities(own, read.ids)).ids.size == (
        read.ids.size
    )
    for bad in (b"", bytes(8 * rest.size - 1), *(np.full(rest.size, x) for x in (0.9, np.nan, -1))):
        with pytest.raises(CodecError):
            decode_probabilities(read, rest, bytes(bad))


@pytest.mark.parametrize("name", NAMES)
def test_other_lengths_are_refused(name: str) -> None:
    each = codec(name, V)
    refuses_other_lengths(partial(decode_distribution, each), encoded(each, spread(4)))


@given(st.binary(max_size=40))
def test_only_codec_errors_escape(data: bytes) -> None:
    for name in NAMES:
        each = codec(name, V)
        for payload in (data, each.quantize(spread(5)).code[:4] + data):  # type: ignore[index]
            try:
                read = decode_distribution(each, payload)
            except CodecError:
                continue
            assert 0 <= read.probabilities.min() <= read.probabilities.max() <= 1


@pytest.mark.parametrize("count", [1, 30, 31, 32, 127, 128, 129])
def test_any_number_of_entries_is_read_back(count: int) -> None:
    p = np.where(np.arange(V) < count, 1 / count, 0.0)
    for name in NAMES:
        assert through(codec(name, V), p)[1].ids.tolist() == list(range(count))


@pytest.mark.parametrize("seed", range(20))
def test_where_all_tokens_are_listed_nothing_is_left(seed: int) -> None:
    """Although what is rounded down may not sum to 1."""
    _, read = through(codec("race", 3), spread(seed, 3, 5.0), Step(0, threshold=1e-9))
    assert (read.ids.tolist(), read.rest) == ([0, 1, 2], 0.0)
