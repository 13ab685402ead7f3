"""Document KV as arrays: the form in which a store keeps it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.errors import ModelError


def document(length: int, dtype: torch.dtype = torch.float32) -> DocumentKV:
    generator = torch.Generator().manual_seed(length)

    def layers() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(2, length, 4, generator=generator).to(dtype) for _ in range(3))

    return DocumentKV(layers(), layers())


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_eight_bits_keep_each_channel_to_its_own_scale(length: int, dtype: torch.dtype) -> None:
    original = document(length, dtype)
    for tensor in original.keys:
        tensor[:, :, 1] *= 1000  # an outlier costs the other channels nothing
        tensor[:, :, 2] = 0
    for kv_type, tolerance in (("model", 0.0), ("int8", 1.1 / 127)):
        arrays = original.dump(kv_type)  # type: ignore[arg-type]
        assert not length or (arrays["keys.0"].dtype == np.int8) == (kv_type == "int8")
        for array in arrays.values():
            array.setflags(write=False)
        restored = DocumentKV.from_arrays(arrays)
        assert restored.length == length
        pairs = zip(original.keys + original.values, restored.keys + restored.values, strict=True)
        for before, after in pairs:
            assert after.dtype == dtype
            if length:
                largest = before.float().abs().amax(1, keepdim=True)
                error = (before.float() - after.float()).abs()
                assert (error <= tolerance * largest + 1e-6 * (kv_type == "int8")).all()
            after.zero_()  # no alias of the arrays


BROKEN: dict[str, Callable[[dict[str, NDArray[Any]]], object]] = {
    "empty": lambda arrays: arrays.clear(),
    "missing": lambda arrays: arrays.pop("values.1"),
    "renamed": lambda arrays: arrays.update({"keys.9": arrays.pop("keys.2")}),
    "shorter": lambda arrays: arrays.update({"values.2": arrays["values.2"][:, :2]}),
    "dtype": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].astype(np.float16)}),
    "unscaled": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].astype(np.int8)}),
    "misscaled": lambda arrays: arrays.update(
        document(3).dump("int8") | {"keys.0.scale": np.ones((1, 1, 4), np.float32)}
    ),
    "flat": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].ravel()}),
    "double": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].astype(np.float64)}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_other_arrays_are_refused(kind: str) -> None:
    arrays = document(3).dump()
    BROKEN[kind](arrays)
    with pytest.raises(ModelError):
        DocumentKV.from_arrays(arrays)
