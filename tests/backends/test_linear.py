"""With how many rows products are made: few numbers, and never many rows for nothing."""

import pytest
import torch
from torch import Tensor

from dragonrt.backends.torch_ import linear
from dragonrt.backends.torch_.linear import FEWEST_ROWS, Linear, whole_rows


def test_numbers_of_rows_are_few_and_hardly_larger() -> None:
    every = {rows: whole_rows(rows) for rows in range(1, 1025)}
    assert len(set(every.values())) == 28  # oneDNN keeps half a megabyte for each, of each shape
    assert all(
        rows <= whole <= max(FEWEST_ROWS, rows + 3, 1.25 * rows) for rows, whole in every.items()
    )


def test_products_are_made_with_those_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made, multiply = set(), linear._multiply

    def noted(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
        made.add(x.shape[0])
        return multiply(x, packed, bias)

    monkeypatch.setattr(linear, "_multiply", noted)
    weight = torch.randn(8, 16)
    layer = Linear(weight)
    x = torch.randn(70, 16)
    for rows in range(1, 71):
        assert torch.allclose(layer(x[:rows]), x[:rows] @ weight.T, atol=1e-5)
    assert made == {whole_rows(rows) for rows in range(1, 71)}
