"""Bytes on the wire: synthetic distributions of a given entropy, sizes, ratios."""

import json
from pathlib import Path

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
        found += wire_bytes._sizes("synthetic", number, wire_bytes.zipf(3000, nats, random))
    return found


def test_every_way_of_writing_is_measured() -> None:
    by_codec = {row["codec"]: row for row in rows() if row["sample"] == 1}
    assert tuple(by_codec) == wire_bytes.WAYS
    assert by_codec["dense:fp16"]["bytes"] == 1 + 2 * 3000
    assert by_codec["dense:fp32"]["bytes"] == 1 + 4 * 3000
    top = by_codec["topp:0.8"]
    assert by_codec[wire_bytes.DRAGON_LAYOUT]["bytes"] == 3 * top["entries"]
    assert top["bytes"] < top["message_bytes"] < top["bytes"] + 50
    assert len(json.dumps([0.0] * 3000)) <= by_codec[wire_bytes.JSON]["bytes"]
    assert by_codec[wire_bytes.JSON]["message_bytes"] is None


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
        assert wire_bytes._lattice_bits(code, code.quantize(three)) == {
            "bits": bits,
            "formula_bits": bits,
        }


@pytest.mark.slow
def test_the_summary_compares_with_json_and_the_picture_is_drawn(tmp_path: Path) -> None:
    measured = rows()
    summary = wire_bytes.summarise(measured)
    codecs = summary["synthetic, V = 3000"]["codecs"]
    assert codecs[wire_bytes.JSON]["times_smaller_than_json"] == 1.0
    assert codecs["dense:fp16"]["times_smaller_than_dense_fp16"] == 1.0
    assert codecs["topp:0.8"]["times_smaller_than_json"] > 100
    assert summary["lattice_points_in_other_bits_than_the_formula"] == 0
    assert summary["reported_by_dragon"] == {"times_smaller_than_json": 2363}
    wire_bytes.plot(measured, tmp_path / "wire.png")
    assert (tmp_path / "wire.png").read_bytes().startswith(b"\x89PNG")
