"""Sampling parameters against a plain reference; draws against the probabilities they promise."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragonrt.distributions import Distribution
from dragonrt.sampling.noise import race
from dragonrt.sampling.samplers import Sampler, most_likely, sample
from dragonrt.settings import SettingError
from tests.oracles.brute_force import sampled

VOCABULARY = 10


@st.composite
def distributions(draw: st.DrawFn) -> Distribution:
    """On a coarse grid, so that ties are common."""
    ids = sorted(draw(st.sets(st.integers(0, VOCABULARY - 1), min_size=1)))
    values = np.array(
        draw(st.lists(st.integers(1, 8), min_size=len(ids), max_size=len(ids))), dtype=np.float64
    )
    others = VOCABULARY - len(ids)
    rest = float(others * draw(st.integers(0, 8)))
    total = values.sum() + rest
    return Distribution(np.array(ids), values / total, rest / total, VOCABULARY)


samplers = st.builds(
    Sampler,
    st.sampled_from([1.0, 0.5, 1.7, 0.0]),
    st.integers(0, VOCABULARY + 1),
    st.sampled_from([1.0, 0.9137, 0.3711, 1e-9]),  # no sum of grid values falls on one of these
    st.sampled_from([0.0, 0.1371, 0.7113]),
)


NEARLY_EQUAL = Distribution(  # token 8 is one last bit above 0, 2, 4, 6 and 9, until it is heated
    np.array([1, 3, 5, 7, 8]), np.array([5.0, 8.0, 2.0, 8.0, 7.0]) / 65, 35 / 65, VOCABULARY
)


@example(NEARLY_EQUAL, Sampler(1.7, 9, 0.3711, 0.7113))
@example(NEARLY_EQUAL, Sampler(0.5, 0, 0.3711, 0.0))
@given(distributions(), samplers)
def test_sampler_against_the_definition(p: Distribution, sampler: Sampler) -> None:
    expected = sampled(sampler, p.to_dense())
    assert np.allclose(sampler.dense(p.to_dense()), expected, rtol=0, atol=1e-12)
    shaped = sampler(p)
    assert np.allclose(shaped.to_dense(), expected, rtol=0, atol=1e-12)
    assert shaped.probabilities.sum() + shaped.rest == pytest.approx(1, abs=1e-12)
    assert (np.diff(shaped.ids) > 0).all()


def test_a_plain_sampler_changes_nothing() -> None:
    p = Distribution(np.array([1, 3]), np.array([0.25, 0.5]), 0.25, 9)
    assert Sampler()(p) is p


def test_min_p_keeps_what_has_exactly_its_part() -> None:
    p = np.array([0.5, 0.25, 0.125, 0.125])
    assert np.flatnonzero(Sampler(min_p=0.5).dense(p)).tolist() == [0, 1]


@pytest.mark.parametrize("temperature", [1e-3, 1e-300, 5e-324])
def test_a_tiny_temperature_keeps_the_most_likely(temperature: float) -> None:
    p = np.array([0.1, 0.45, 0.0, 0.45])
    assert Sampler(temperature).dense(p).tolist() == [0.0, 0.5, 0.0, 0.5]


def test_the_highest_temperature_levels_what_is_possible() -> None:
    found = Sampler(100.0).dense(np.array([0.9, 0.1, 0.0]))
    assert np.allclose(found, [0.5, 0.5, 0.0], rtol=0, atol=0.01)


def test_float32_in_float64_out() -> None:
    assert Sampler(0.7).dense(np.array([0.5, 0.5], dtype=np.float32)).dtype == np.float64


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": -0.1},
        {"temperature": 101.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": float("nan")},
        {"min_p": -0.1},
        {"min_p": 1.5},
    ],
)
def test_parameters_out_of_range(parameters: dict[str, float]) -> None:
    with pytest.raises(SettingError):
        Sampler(**parameters)  # type: ignore[arg-type]


@given(distributions())
def test_most_likely_is_the_lowest_argmax(p: Distribution) -> None:
    assert most_likely(p) == int(p.to_dense().argmax())


@given(distributions(), st.lists(st.integers(1, 4), min_size=VOCABULARY, max_size=VOCABULARY))
def test_race_is_the_lowest_argmax_of_the_ratio(p: Distribution, noise: list[int]) -> None:
    exponentials = np.array(noise, dtype=np.float64)
    # In the floats of `p` as they are: what rounding does to `rest` may decide between equals.
    assert race(p, exponentials) == int((p.to_dense() / exponentials).argmax())


def test_sample_never_returns_the_impossible() -> None:
    p = Distribution(np.array([1, 2, 5, 7]), np.array([0.0, 0.1, 0.2, 0.0]), 0.0, 9)
    assert {sample(p, u) for u in (0.0, 0.3, 0.34, 0.9, np.nextafter(1, 0))} == {2, 5}


def test_sample_of_what_is_not_listed() -> None:
    p = Distribution(np.array([0, 2, 3]), np.array([0.1, 0.1, 0.1]), 0.7, 6)
    assert [sample(p, u) for u in (0.31, 0.6, 0.99)] == [1, 4, 5]
