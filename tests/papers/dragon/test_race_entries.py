"""The measurement of the race codec: pairs as far apart as real ones, requests, a summary."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution, entropy, total_variation
from scripts.papers.dragon import race_entries
from scripts.papers.dragon.race_entries import Pair


def pairs(count: int) -> list[Pair]:
    random = np.random.default_rng(5)
    found = []
    for number in range(count):
        logits = 3 * random.standard_normal(200) + random.standard_normal((2, 200))
        p, q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        found.append(Pair(number // 4, (p, q), (0.4, 0.6)))
    return found


def test_a_larger_pair_is_as_uncertain_and_as_far_apart() -> None:
    pair = pairs(1)[0]
    large = race_entries.enlarged(pair, 5000, np.random.default_rng(0))
    for p, q in zip(pair.p, large.p, strict=True):
        assert q.size == 5000
        assert entropy(Distribution.from_dense(q)) == pytest.approx(
            entropy(Distribution.from_dense(p)), rel=0.25
        )
    apart = [total_variation(*map(Distribution.from_dense, each.p)) for each in (pair, large)]
    assert apart[1] == pytest.approx(apart[0], abs=0.1)
