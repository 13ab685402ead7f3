"""Weights of 8 bits, an output layer that is held once, and the type that a model runs in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_ import checkpoint, weights
from dragonrt.backends.torch_.int4 import Groups, Int4Linear, can_multiply_int4
from dragonrt.backends.torch_.int8 import QuantizedLinear, can_quantize
from dragonrt.backends.torch_.linear import has_fast_bfloat16
from dragonrt.backends.torch_.weights import TiedTable, WeightSource, floats
from dragonrt.errors import ModelError
from dragonrt.side import Precision

needs_vnni = pytest.mark.skipif(not can_quantize(), reason="this CPU does not multiply bytes")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@needs_vnni
@pytest.mark.parametrize("inputs", [40, 1000, 5000])
def test_only_the_weights_are_rounded(inputs: int) -> None:
    weight, bias, x = normal(30, inputs), normal(30, seed=1), normal(5, inputs, seed=2)
    x[0] *= 1e-4
    x[1, 0] = 1e4  # rows differ in scale, and one has an outlier
    x[2] = 0.0
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    rounded = (weight / scale).round() * scale
    expected = x.double() @ rounded.T.double() + bias.double()
    computed = QuantizedLinear(weight, bias)(x).double()
    allowed = x.abs().amax(dim=1, keepdim=True) / 127 / 254 / 2 * rounded.abs().sum(dim=1)
    assert ((computed - expected).abs() <= allowed.double() + 1e-6 * expected.abs() + 1e-9).all()
    assert torch.equal(computed[2], bias.double())


@needs_vnni
def test_eight_bits_change_what_a_trained_model_says_very_little() -> None:
    whole = LanguageModel.load("dragon-small", "cpu", "float32")
    small = LanguageModel.load("dragon-small", "cpu", "int8")
    assert small.dtype == "int8"
    assert small.fingerprint == whole.fingerprint
    assert small.document_fingerprint != whole.document_fingerprint
    notes = sorted(bundled.documents("device").iterdir())
    tokens = whole.encode("\n".join(note.read_text(encoding="utf-8") for note in notes))[:200]
    said, rounded = (
        torch.stack([torch.from_numpy(each.at(np.arange(model.vocabulary))[0]) for each in found])
        for model in (whole, small)
        for found in [model.rows([model.document_kv([])]).extend_all(tokens)]
    )
    divergence = (said.exp() * (said - rounded)).sum(dim=1)
    assert float(divergence.mean()) < 1e-3
    assert float((said.argmax(dim=1) == rounded.argmax(dim=1)).float().mean()) > 0.95


@pytest.mark.parametrize(
    ("dtype", "missing", "found"),
    [
        ("int8", "can_quantize", lambda: False),
        ("int4", "can_multiply_int4", lambda: False),
        ("int8", "transformer", lambda *_: None),  # it runs through transformers
    ],
)
def test_rounded_weights_are_refused_where_they_cannot_be(
    dtype: Precision, missing: str, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, missing, found)
    with pytest.raises(ModelError):
        LanguageModel.load("dragon-draft", "cpu", dtype)


@pytest.mark.parametrize(("outputs", "inputs"), [(16, 32), (50, 64), (960, 576), (64, 1536)])
def test_products_of_4_bits_are_of_the_rounded_weights_row_by_row(
    outputs: int, inputs: int
) -> None:
    if not can_multiply_int4():
        pytest.skip("torch has no products of 4 bits here")
    weight, bias, x = normal(outputs, inputs), normal(outputs, seed=1), normal(40, inputs, seed=2)
    groups = Groups.rounded(weight)
    span = weight.view(outputs, -1, 32).amax(dim=2) - weight.view(outputs, -1, 32).amin(dim=2)
    error = (groups.dense() - weight).abs().view(outputs, -1, 32).amax(dim=2)
    assert bool((error <= span / 15 * 0.55 + 0.02).all())  # half a step, and bfloat16's rounding
    layer = Int4Linear(groups, bias)
    whole = layer(x)
    wanted = x.float() @ groups.dense().T + bias
    torch.testing.assert_close(whole.float(), wanted, atol=0.02 * inputs**0.5, rtol=0.02)
    for rows in (*range(1, 17), 33):
        for first in (0, 40 - rows):
            assert torch.equal(layer(x[first : first + rows]), whole[first : first + rows])


def test_a_large_tied_layer_is_held_once_and_gives_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight, source, form = normal(5000, 48), WeightSource(), floats(torch.float32)
    assert not isinstance(source.ends(weight, weight, form)[0], TiedTable), "it is small"
    monkeypatch.setattr(weights, "_WORTH_SHARING", 0)
    monkeypatch.setattr(weights, "_ROWS_KEPT", 4)
    embed, output = source.ends(weight, weight, form)
    assert isinstance(embed, TiedTable)
    plain, whole = source.ends(weight, weight.clone(), form)
    assert not isinstance(plain, TiedTable)
    for seed in range(5):
        tokens = torch.randint(5000, (9,), generator=torch.Generator().manual_seed(seed))
        assert torch.equal(embed(tokens), plain(tokens))
    x = normal(3, 48, seed=1)
    logits = [torch.cat([piece(x) for piece in each], dim=1) for each in (output, whole)]
    assert torch.equal(*logits)


@pytest.mark.parametrize(
    ("smallest", "dtype"), [(1, "bfloat16" if has_fast_bfloat16() else "float32"), (9e9, "float32")]
)
def test_larger_models_run_in_bfloat16_where_it_is_fast(
    smallest: float, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_SMALL", smallest)
    assert LanguageModel.load(Path(bundled.model_path("dragon-draft")), "cpu").dtype == dtype
