"""Document KV as arrays: the form in which a store keeps it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragonrt.backends.transformers_.kv_cache import DocumentKV
from dragonrt.errors import ModelError


def document(length: int, dtype: torch.dtype = torch.float32) -> DocumentKV:
    generator = torch.Generator().manual_seed(length)

    def layers() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(2, length, 4, generator=generator).to(dtype) for _ in range(3))

    return DocumentKV(layers(), layers())


@pytest.mark.parametrize("length", [0, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_arrays_keep_every_bit(length: int, dtype: torch.dtype) -> None:
    original = document(length, dtype)
    arrays = original.dump()
    for array in arrays.values():
        array.setflags(write=False)
    restored = DocumentKV.from_arrays(arrays)
    assert restored.length == length
    pairs = zip(original.keys + original.values, restored.keys + restored.values, strict=True)
    for before, after in pairs:
        assert after.dtype == dtype
        assert torch.equal(before, after)
        after.zero_()  # no alias of the arrays


BROKEN: dict[str, Callable[[dict[str, NDArray[Any]]], object]] = {
    "empty": lambda arrays: arrays.clear(),
    "missing": lambda arrays: arrays.pop("values.1"),
    "renamed": lambda arrays: arrays.update({"keys.9": arrays.pop("keys.2")}),
    "shorter": lambda arrays: arrays.update({"values.2": arrays["values.2"][:, :2]}),
    "dtype": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].astype(np.float16)}),
    "flat": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].ravel()}),
    "double": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].astype(np.float64)}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_other_arrays_are_refused(kind: str) -> None:
    arrays = document(3).dump()
    BROKEN[kind](arrays)
    with pytest.raises(ModelError):
        DocumentKV.from_arrays(arrays)
