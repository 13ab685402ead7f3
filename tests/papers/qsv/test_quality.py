"""The law of a verified block's first token, and what is said and drawn of it."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution, codec
from scripts.papers.qsv.quality import first_token_law

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


def test_the_same_distribution_on_both_sides_refuses_nothing() -> None:
    p = SENT.to_dense()
    np.testing.assert_array_equal(first_token_law(SENT, SENT, p), p)
