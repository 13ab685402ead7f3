"""Theorem 1's terms by hand, and what is said and drawn of them."""

import numpy as np
import pytest

from dragonrt.distributions import codec
from dragonrt.sampling.rules import VerifyResult
from scripts.papers.speculation import DraftedStep, VerifiedBlock
from scripts.papers.sqs import bound as sqs_bound

Q = np.array((0.5, 0.25, 0.15, 0.1))
P = np.array((0.25, 0.5, 0.15, 0.1))


def block(accepted: int) -> VerifiedBlock:
    """Two drafts from the two likeliest tokens of Q, in sixths: 4/6 and 2/6."""
    quantized = codec("ksqs:2:6", 4).quantize(Q)
    drafted = [DraftedStep(0, Q, quantized), DraftedStep(0, Q, quantized)]
    return VerifiedBlock(drafted, [P, P, P], VerifyResult(accepted, 1))


def test_the_terms_are_summed_over_the_tokens_that_were_judged() -> None:
    found = sqs_bound.sums([block(0), block(2)], 6)
    assert (found["tokens"], found["batches"], found["judged"], found["rejected"]) == (4, 2, 3, 1)
    assert found["discrepancy"] == pytest.approx(3 * 0.25)
    assert found["expected"] == pytest.approx(3 * (4 / 6 - 0.25))
    assert found["dropped"] == pytest.approx(3 * 0.25)
    assert found["lattice"] == pytest.approx(3 * 2 / (4 * 6))
    assert found["steered"] == pytest.approx(4 * 0.25), "once more behind a block that stands"
    assert found["expected"] <= sqs_bound.bound(found)
