"""Document KV as arrays: the form in which a store keeps it."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.errors import ModelError

TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])


def document(length: int, dtype: torch.dtype = torch.float32) -> DocumentKV:
    generator = torch.Generator().manual_seed(length)

    def layers() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(2, length, 4, generator=generator).to(dtype) for _ in range(3))

    return DocumentKV(layers(), layers())


@pytest.mark.parametrize("length", [0, 1, 7])
@TYPES
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


def broken(kind: str) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = document(3).dump()
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
            arrays = document(3).dump("int8")
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
    with pytest.raises(ModelError):
        DocumentKV.from_arrays(broken(kind))
