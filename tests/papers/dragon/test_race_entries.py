"""The measurement of the race codec: pairs as far apart as real ones, requests, a summary."""

from pathlib import Path

import numpy as np
import pytest

from dragonrt.distributions import Distribution, entropy, total_variation
from scripts.papers.dragon import race_entries
from scripts.papers.dragon.race_entries import Pair
from scripts.papers.intervals import Row, having


def pairs(count: int) -> list[Pair]:
    random = np.random.default_rng(5)
    found = []
    for number in range(count):
        logits = 3 * random.standard_normal(200) + random.standard_normal((2, 200))
        p, q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        found.append(Pair(number // 4, (p, q), (0.4, 0.6)))
    return found


def rows() -> list[Row]:
    return [row for t in race_entries.TEMPERATURES for row in race_entries.measured("x", pairs(8), t, 1)]  # fmt: skip  # noqa: E501


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


def test_every_codec_is_measured_and_no_winner_is_wrong(tmp_path: Path) -> None:
    measured = rows()
    assert {row["codec"] for row in measured} == set(race_entries.CODECS)
    assert sum(row["wrong"] for row in measured) == 0
    assert all(row["as_fp32"] for row in having(measured, codec="race:0.1:fp32"))
    sizes = [
        np.mean([row["bytes"] for row in having(measured, codec=f"race:{tau:g}")])
        for tau in race_entries.TAUS
    ]
    assert sizes == sorted(sizes, reverse=True), "a higher threshold lists less"
    summary = race_entries.summarise(measured)
    assert summary["wrong_winners"] == 0
    at = summary["x, V = 200, temperature 1"]["codecs"]
    assert at["race:0.1"]["part_of_topp"] < 1 == at["topp:0.8"]["part_of_topp"]
    assert 0 <= at["race"]["steps_that_ask"] < 0.5
    race_entries.plot(measured, tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")
