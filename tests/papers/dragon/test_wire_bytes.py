"""Bytes on the wire: synthetic distributions of a given entropy, sizes, ratios."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution, entropy
from scripts.papers.dragon import wire_bytes


@pytest.mark.parametrize("nats", [0.05, 1.5, 4.0])
def test_a_synthetic_distribution_has_the_entropy_it_was_asked_for(nats: float) -> None:
    p = wire_bytes.zipf(5000, nats, np.random.default_rng(0))
    assert p.sum() == pytest.approx(1)
    assert entropy(Distribution.from_dense(p)) == pytest.approx(nats, abs=1e-3)
    assert p.argmax() != 0, "its ids are in random order"
