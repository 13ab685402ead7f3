"""Theorem 1's terms by hand, and what is said and drawn of them."""

from pathlib import Path

import numpy as np
import pytest

from dragonrt.distributions import codec
from dragonrt.sampling.verification import VerifyResult
from scripts.papers.intervals import Row
from scripts.papers.speculation import DraftedStep, JudgedBlock
from scripts.papers.sqs import bound as sqs_bound

Q = np.array((0.5, 0.25, 0.15, 0.1))
P = np.array((0.25, 0.5, 0.15, 0.1))


def block(accepted: int) -> JudgedBlock:
    """Two drafts from the two likeliest tokens of Q, in sixths: 4/6 and 2/6."""
    quantized = codec("ksqs:2:6", 4).quantize(Q)
    drafted = [DraftedStep(0, Q, quantized), DraftedStep(0, Q, quantized)]
    return JudgedBlock(drafted, [P, P, P], VerifyResult(accepted, 1))


def test_the_terms_are_summed_over_the_tokens_that_were_judged() -> None:
    found = sqs_bound.sums([block(0), block(2)], 6)
    assert (found["tokens"], found["batches"], found["judged"], found["rejected"]) == (4, 2, 3, 1)
    assert found["discrepancy"] == pytest.approx(3 * 0.25)
    assert found["expected"] == pytest.approx(3 * (4 / 6 - 0.25))
    assert found["dropped"] == pytest.approx(3 * 0.25)
    assert found["lattice"] == pytest.approx(3 * 2 / (4 * 6))
    assert found["steered"] == pytest.approx(4 * 0.25), "once more behind a block that stands"
    assert found["expected"] <= sqs_bound.bound(found)


def rows() -> list[Row]:
    return [
        {"setting": coding.name, "temperature": heat, "text": text}
        | sqs_bound.sums([block(text), block(2)], 6)
        | {"threshold": coding.beta}
        for coding in sqs_bound.CODINGS
        for heat in (0.0, 1.0)
        for text in (0, 1)
    ]


@pytest.mark.slow
def test_the_summary_has_both_theorems_and_the_picture_is_drawn(tmp_path: Path) -> None:
    measured = rows()
    summary = sqs_bound.summarise(measured)
    assert summary["texts_expected_above_bound"] == 0
    slow, fast = (summary[coding.name]["1.0"] for coding in sqs_bound.CODINGS[-2:])
    assert slow["rejected"] == pytest.approx(2 / 7, abs=1e-4)
    assert slow["theorem2_dropped"] == 0.25
    # α + (β₁ + 1 + ηα) / (ηT) with T = 9 tokens of two texts.
    assert fast["theorem2_bound"] == pytest.approx(0.0005 + 1.01005 / 0.9, rel=1e-3)
    assert slow["theorem2_bound"] > fast["theorem2_bound"]
    assert "theorem2_bound" not in summary[sqs_bound.CODINGS[0].name]["1.0"]
    sqs_bound.plot(measured, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
