"""Local aggregation against its definition."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.backends import RowWeights


@given(
    scores=st.lists(st.floats(-60, 60), min_size=1, max_size=5),
    seed=st.integers(0, 2**31),
)
def test_it_is_the_mixture_by_softmax(scores: list[float], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(scores), 40, generator=generator, dtype=torch.float64) * 4
    probabilities = logits.softmax(-1).numpy()
    weights = torch.tensor(scores, dtype=torch.float64).softmax(0).numpy()
    own = RowWeights(scores)
    mixed = own.mixed(logits.log_softmax(-1).float())
    assert mixed.dtype == np.float32
    np.testing.assert_allclose(mixed, weights @ probabilities, atol=2e-6)
    assert mixed.sum() == pytest.approx(1, abs=1e-5)
    assert own.weights == pytest.approx(weights)
    assert own.relevance == pytest.approx(
        float(torch.tensor(scores, dtype=torch.float64).logsumexp(0))
    )


def test_one_document_is_its_own_distribution() -> None:
    row = torch.tensor([[0.5, 0.25, 0.25]]).log()
    own = RowWeights([-3.5])
    np.testing.assert_allclose(own.mixed(row), [0.5, 0.25, 0.25], atol=1e-7)
    assert own.relevance == -3.5


def test_the_input_is_left_as_it_was() -> None:
    rows = torch.randn(3, 10).log_softmax(-1)
    before = rows.clone()
    own = RowWeights([1.0, 2.0, 3.0])
    first = own.mixed(rows)
    assert torch.equal(rows, before)
    np.testing.assert_array_equal(own.mixed(rows), first)
