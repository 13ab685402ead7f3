"""The law of a verified block's first token, and what is said and drawn of it."""

from pathlib import Path

import numpy as np
import pytest

from dragonrt.distributions import Distribution, codec, total_variation
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import speculative_rule
from scripts.papers.framework import Settings
from scripts.papers.intervals import Row, grouped
from scripts.papers.qsv import quality as qs_quality
from scripts.papers.qsv.quality import PairPosition, first_token_law

Q = np.array((0.55, 0.24, 0.14, 0.07))
P = np.array((0.2, 0.5, 0.1, 0.2))
SENT = codec("qs:4", 4).quantize(Q).distribution


def test_drafts_from_what_is_sent_leave_the_cloud_s_law() -> None:
    assert not np.allclose(SENT.to_dense(), Q)
    np.testing.assert_allclose(first_token_law(SENT, SENT, P), P, atol=1e-15)


def test_drafts_from_the_exact_distribution_do_not() -> None:
    law = first_token_law(Distribution.from_dense(Q), SENT, P)
    assert law.sum() == pytest.approx(1)
    assert np.abs(law - P).sum() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rejection", "sample-quantize"])
def test_the_rules_follow_that_law(name: str) -> None:
    draws = 4000
    counts = np.zeros(4)
    exact = Distribution.from_dense(Q)
    for seed in range(draws):
        rule = speculative_rule(name, Noise(seed), Sampler(1.0))
        source = SENT if rule.drafts_from_quantized else exact
        token = rule.draft(0, source)
        verdict = rule.verify(0, [token], [SENT], [P, P])
        counts[token if verdict.accepted else verdict.token] += 1
    law = first_token_law(SENT if name == "rejection" else exact, SENT, P)
    assert float(((counts - draws * law) ** 2 / (draws * law)).sum()) < 16.3, "χ² of 3, at 0.001"


def test_the_same_distribution_on_both_sides_refuses_nothing() -> None:
    p = SENT.to_dense()
    np.testing.assert_array_equal(first_token_law(SENT, SENT, p), p)


@pytest.mark.slow
def test_answers_are_told_from_those_out_of_long_texts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(qs_quality, "QUESTIONS_QUICK", 1)
    monkeypatch.setattr(qs_quality, "TEMPERATURES_QUICK", (1.0,))
    monkeypatch.setattr(qs_quality, "TOKENS", 4)
    settings = Settings(quick=True, real=True, repeats=1, seed=0, results=tmp_path)
    measured = grouped(qs_quality.run(settings, lambda done, total: None), "kind")
    assert set(measured) == {("answers",), ("long",)}
    assert measured["answers",][0]["prompt_tokens"] < 100 < measured["long",][0]["prompt_tokens"]
    for some in measured.values():
        assert len(some) == 1 + len(qs_quality.WAYS)
        for row in some:
            assert row["tv"] < 1e-9 or row["way"].startswith("S-Q")


def rows() -> list[Row]:
    found: list[Row] = []
    exact = Distribution.from_dense(Q)
    for heat in (0.5, 1.0):
        for way in (qs_quality.CLOUD, *qs_quality.WAYS):
            law = first_token_law(exact if way.startswith("S-Q") else SENT, SENT, P)
            row = qs_quality._row([law], [PairPosition(Q, P)], "press green", "press green twice")
            found.append({"way": way, "temperature": heat, "question": 0, "repeat": 0} | row)
    return found


@pytest.mark.slow
def test_the_summary_says_how_far_each_way_is_and_the_picture_is_drawn(tmp_path: Path) -> None:
    measured = rows()
    assert measured[0]["rouge2"] == pytest.approx(2 / 3)
    summary = qs_quality.summarise(measured)
    assert summary["largest_tv_of_q_s"] < 1e-12
    assert summary["largest_tv_of_s_q"] == pytest.approx(
        total_variation(
            Distribution.from_dense(first_token_law(Distribution.from_dense(Q), SENT, P)),
            Distribution.from_dense(P),
        )
    )
    qs_quality.plot(measured, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
