"""Document KV as arrays: the form in which a store keeps it."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragonrt.backends import DocumentKV, ModelError


def document(length: int, dtype: torch.dtype) -> DocumentKV:
    generator = torch.Generator().manual_seed(length)

    def layers() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(2, length, 4, generator=generator).to(dtype) for _ in range(3))

    return DocumentKV(layers(), layers())


@pytest.mark.parametrize("length", [0, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_arrays_and_back_keep_every_bit(length: int, dtype: torch.dtype) -> None:
    original = document(length, dtype)
    restored = DocumentKV.from_arrays(original.to_arrays())
    assert restored.length == length
    for before, after in zip(
        original.keys + original.values, restored.keys + restored.values, strict=True
    ):
        assert after.dtype == dtype
        assert torch.equal(before, after)


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_eight_bits_keep_each_channel_to_its_own_scale(length: int, dtype: torch.dtype) -> None:
    original = document(length, dtype)
    for tensor in original.keys:
        tensor[:, :, 1] *= 1000  # an outlier costs the other channels nothing
        tensor[:, :, 2] = 0
    arrays = original.to_arrays("int8")
    assert length == 0 or all(arrays[f"keys.{layer}"].dtype == np.int8 for layer in range(3))
    restored = DocumentKV.from_arrays(arrays)
    for before, after in zip(
        original.keys + original.values, restored.keys + restored.values, strict=True
    ):
        assert after.dtype == dtype
        if length:
            step = before.float().abs().amax(1, keepdim=True) / 127
            assert ((before.float() - after.float()).abs() <= 1.1 * step + 1e-6).all()
    again = DocumentKV.from_arrays(restored.to_arrays("int8"))
    if dtype == torch.float32:
        assert all(map(torch.allclose, restored.keys, again.keys))


def test_restored_tensors_do_not_alias_the_arrays() -> None:
    arrays = document(2, torch.float32).to_arrays()
    for array in arrays.values():
        array.setflags(write=False)
    restored = DocumentKV.from_arrays(arrays)
    restored.keys[0].zero_()
    assert arrays["keys.0"].any()


def broken(kind: str) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = document(3, torch.float32).to_arrays()
    match kind:
        case "empty":
            return {}
        case "missing":
            del arrays["values.1"]
        case "renamed":
            arrays["keys.9"] = arrays.pop("keys.2")
        case "shorter":
            arrays["values.2"] = arrays["values.2"][:, :2]
        case "dtype":
            arrays["keys.0"] = arrays["keys.0"].astype(np.float16)
        case "unscaled":
            arrays["keys.0"] = arrays["keys.0"].astype(np.int8)
        case "misscaled":
            arrays = document(3, torch.float32).to_arrays("int8")
            arrays["keys.0.scale"] = arrays["keys.0.scale"][:1]
        case "flat":
            arrays["keys.0"] = arrays["keys.0"].ravel()
        case "double":
            arrays["keys.0"] = arrays["keys.0"].astype(np.float64)
    return arrays


@pytest.mark.parametrize(
    "kind",
    ["empty", "missing", "renamed", "shorter", "dtype", "unscaled", "misscaled", "flat", "double"],
)
def test_other_arrays_are_refused(kind: str) -> None:
    with pytest.raises(ModelError, match="re-index"):
        DocumentKV.from_arrays(broken(kind))
