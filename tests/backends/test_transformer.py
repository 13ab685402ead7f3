"""Forwards against transformers' own, without cache or padding."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from dragonrt.backends.torch_.linear import PackedLinear, pack_linear_layers
from dragonrt.testing.backend_contract import LENGTHS, numbers


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-4), ("bfloat16", None)])
def test_every_row_is_its_text_alone(tiny: Any, dtype: str, atol: float | None) -> None:
    on = tiny.subject(dtype)
    line, rows = on.text(21, 1), on.opened()
    found = numbers([*rows.extend_all(line[:20]), rows.extend(line[20:])])
    for row, length in enumerate(LENGTHS):
        wanted = torch.cat(tiny.expected(on.text(length, length) + line), dim=1)[length:]
        error = np.abs(found[:, row] - wanted.numpy())
        assert error[:, : on.info.vocabulary].mean() < 0.03
        if atol is not None:
            assert error.max() < atol
            assert error[:, : on.info.vocabulary].max() < 5e-6


def test_packing_a_model_keeps_the_bits_of_bfloat16(tiny: Any) -> None:
    model = copy.deepcopy(tiny.reference).to(torch.bfloat16)
    linear_layers = [type(layer) for layer in model.modules()].count(torch.nn.Linear)
    tokens = torch.tensor([list(range(5, 29))])
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits
        pack_linear_layers(model)
        packed = [type(layer) for layer in model.modules()].count(PackedLinear)
        assert packed == linear_layers > 0
        assert torch.equal(model(input_ids=tokens).logits, expected)
