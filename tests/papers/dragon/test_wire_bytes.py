"""Bytes on the wire: synthetic distributions of a given entropy, sizes, ratios."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution, codec, entropy
from scripts.papers.dragon import wire_bytes
from scripts.papers.intervals import Row


@pytest.mark.parametrize("nats", [0.05, 1.5, 4.0])
def test_a_synthetic_distribution_has_the_entropy_it_was_asked_for(nats: float) -> None:
    p = wire_bytes.zipf(5000, nats, np.random.default_rng(0))
    assert p.sum() == pytest.approx(1)
    assert entropy(Distribution.from_dense(p)) == pytest.approx(nats, abs=1e-3)
    assert p.argmax() != 0, "its ids are in random order"


def rows() -> list[Row]:
    random = np.random.default_rng(0)
    found: list[Row] = []
    for number, nats in enumerate((0.1, 2.0, 3.0)):
        found += wire_bytes.sizes("synthetic", number, wire_bytes.zipf(3000, nats, random))
    return found


@pytest.mark.parametrize("name", wire_bytes.LATTICE_CODECS)
def test_a_lattice_point_takes_the_bits_of_the_formula(name: str) -> None:
    for row in (row for row in rows() if row["codec"] == name):
        assert row["bits"] == row["formula_bits"]
        assert row["bytes"] == 1 + (row["bits"] + 7) // 8, "the codec's kind, then whole bytes"
    # C(100 + 2, 2) = 5151 points over three tokens, 13 bits; C(3, 2) = 3 sets of two, 2 bits.
    three = np.array((0.5, 0.3, 0.2))
    codes = {"qs:100": 13, "ksqs:2:100": 2 + 7, "csqs:0.25:100": 2 + 2 + 7}
    for coded, bits in codes.items():
        code = codec(coded, 3)
        assert wire_bytes.lattice_bits(code, code.quantize(three)) == {
            "bits": bits,
            "formula_bits": bits,
        }
