"""Few tokens are computed with one by one, with the very bits and bytes of many."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions import (
    byte_codecs,
    codec,
    mix,
)
from dragonrt.distributions import distribution as values

T = TypeVar("T")

V = 300
TAILS = st.lists(st.integers(0, V - 1), min_size=1, max_size=values.FEW // 2, unique=True)


def both_ways(compute: Callable[[], T]) -> tuple[T, T]:
    with pytest.MonkeyPatch.context() as patched:
        one_by_one = compute()
        for module in (values, byte_codecs):
            patched.setattr(module, "FEW", 0)
        return one_by_one, compute()


@given(
    TAILS, st.integers(0, 2**32), st.sampled_from(["topp:0.9", "topk:7:renorm", "topk:7:residual"])
)
def test_payloads_are_the_same(tokens: list[int], seed: int, name: str) -> None:
    p = np.full(V, 1e-9)
    p[tokens] = np.random.default_rng(seed).exponential(size=len(tokens)) ** 4
    p = p.astype(np.float32) / p.sum()
    code = codec(name, V)
    few, many = both_ways(lambda: code.encode(code.quantize(p)))
    assert few == many
    read, again = both_ways(lambda: code.decode(few))
    assert np.array_equal(read.ids, again.ids)
    assert read.probabilities.tobytes() == again.probabilities.tobytes()
    assert (read.rest, read.ids.dtype) == (again.rest, again.ids.dtype)


@given(TAILS, TAILS, st.integers(0, 2**32), st.booleans())
def test_mixtures_are_the_same(one: list[int], other: list[int], seed: int, rest: bool) -> None:
    chance = np.random.default_rng(seed)
    sides = []
    for tokens in (one, other):
        p = chance.dirichlet(np.ones(len(tokens) + rest))
        left = float(p[-1]) if rest else 0.0
        sides.append(values.Distribution(np.sort(tokens), p[: len(tokens)], left, V))
    few, many = both_ways(lambda: mix(sides, (0.3, 0.7)))
    assert np.array_equal(few.ids, many.ids)
    assert few.probabilities.tobytes() == many.probabilities.tobytes()
    assert few.rest == many.rest
