"""Linear layers in the layout that the CPU multiplies fastest, and with reproducible bits."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

FEWEST_ROWS = 4
"""Fewer rows are filled up. oneDNN multiplies a single one by kernels that sum in another order.
And where weights come from memory, four take no longer than one, and less than two."""


def whole_rows(rows: int) -> int:
    """Return the next number of rows that products are made with: 4, 8, ..., 32, 40, ..., 64, 80.

    oneDNN keeps a program of half a megabyte for every number that it has met.
    """
    step = max(FEWEST_ROWS, (1 << (rows - 1).bit_length()) // 8)
    return -(-rows // step) * step


class Linear:
    """y = x Wᵀ + b in the type of W [outputs, inputs], of x [n, inputs] of any type.

    On a CPU the weight is stored in oneDNN's blocked layout (about twice as fast as `F.linear` for
    few rows); where `is_row_invariant`, a row of y has the same bits in a block of any size.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        self._weight = weight
        self._packed = packs(weight)
        if self._packed:
            self._weight = _pack(weight)

    @property
    def weight(self) -> Tensor:
        """Return W [outputs, inputs], which may have to be unpacked."""
        return self._weight.to_dense() if self._packed else self._weight

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self._weight.dtype)
        if not self._packed:
            return functional.linear(x, self._weight, self._bias)
        rows = x.shape[0]
        return _multiply(filled_up(x, whole_rows(rows)), self._weight, self._bias)[:rows]


def filled_up(x: Tensor, rows: int) -> Tensor:
    """Return x [n, ...] with rows of zeros behind, so many in all."""
    missing = rows - x.shape[0]
    return functional.pad(x, (0, 0) * (x.ndim - 1) + (0, missing)) if missing else x


Pointwise = Callable[[Tensor], Tensor]


class PackedLinear(nn.Module):
    """`Linear` in the place of a transformers model's own linear layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self._product = Linear(layer.weight, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self._product(x.flatten(0, -2)).view(*x.shape[:-1], -1)


def pack_linear_layers(model: nn.Module) -> None:
    """Replace the linear layers of a model in place, where packing makes them faster."""
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Linear and packs(layer.weight):
            model.set_submodule(name, PackedLinear(layer))


def packs(weight: Tensor) -> bool:
    """Return whether products with this weight are made in the packed layout."""
    return weight.device.type == "cpu" and _packing_works(weight.dtype)


def is_row_invariant(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a row of a product has the same bits in any block.

    By oneDNN's kernels it has in float32 on any CPU, in bfloat16 where that is computed by vectors
    and not by AMX's tiles.
    """
    if device.type != "cpu" or not _packing_works(dtype):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and has_fast_bfloat16())


def has_fast_bfloat16() -> bool:
    """Return whether the CPU multiplies bfloat16 by vector instructions of its own."""
    return torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return packed


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y


@cache
def _packing_works(dtype: torch.dtype) -> bool:
    """Return whether this torch has the two private operators and they compute the product."""
    x, weight = torch.eye(8, dtype=dtype), torch.arange(64, dtype=dtype).view(8, 8)
    try:
        return torch.equal(_multiply(x, _pack(weight), None), weight.T)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def sample_weight() -> Tensor:
    """Return a weight [80, 64] to try products with."""
    return torch.randn(80, 64, generator=torch.Generator().manual_seed(0))


def computes_rows(make: Callable[[Tensor], Pointwise], weight: Tensor, atol: float) -> bool:
    """Return whether torch has the operators of a product, and it computes each row as if alone."""
    x = torch.randn(17, weight.shape[1], generator=torch.Generator().manual_seed(1))
    try:
        layer = make(weight)
        y = layer(x)
        alone = torch.cat([layer(row) for row in torch.split(x, 1)])
        return torch.equal(y, alone) and torch.allclose(y.float(), x @ weight.T, atol=atol)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
