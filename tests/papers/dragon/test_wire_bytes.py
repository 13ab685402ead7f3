"""Bytes on the wire: synthetic distributions of a given entropy, sizes, ratios."""

from math import comb

import numpy as np
import pytest

from dragonrt.distributions import Distribution, LatticePoint, codec, entropy
from dragonrt.distributions.bits import BitWriter
from scripts.papers.dragon import wire_bytes


@pytest.mark.parametrize("nats", [0.05, 1.5, 4.0])
def test_a_synthetic_distribution_has_the_entropy_it_was_asked_for(nats: float) -> None:
    p = wire_bytes.zipf(5000, nats, np.random.default_rng(0))
    assert p.sum() == pytest.approx(1)
    assert entropy(Distribution.from_dense(p)) == pytest.approx(nats, abs=1e-3)
    assert p.argmax() != 0, "its ids are in random order"


@pytest.mark.parametrize("name", ["qs:100", "ksqs:64:100", "csqs:0.001:100"])
def test_a_lattice_point_takes_the_bits_of_the_papers_formulas(name: str) -> None:
    """SQS Eq. (1), (2), (5) and QSV III-B."""
    code, random = codec(name, 3000), np.random.default_rng(0)
    for nats in (0.1, 2.0, 3.0):
        quantized, writer = code.quantize(wire_bytes.zipf(3000, nats, random)), BitWriter()
        code.write(quantized, writer)
        assert isinstance(quantized.code, LatticePoint)
        kept = quantized.code.ids.size
        bits = bits_of(comb(100 + kept - 1, 100))
        bits += 0 if name.startswith("qs") else bits_of(comb(3000, kept))
        bits += bits_of(3000) if name.startswith("csqs") else 0
        assert writer.bits == bits


def bits_of(number: int) -> int:
    return (number - 1).bit_length()
