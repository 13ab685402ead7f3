"""Linear layers in the layout that the CPU multiplies fastest, and with reproducible bits."""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

# Up to here oneDNN sums a float32 product in one pass, whatever the number of rows. Longer sums are
# cut in an order that depends on the number of rows, so we cut them ourselves.
_LONGEST_SUM = 1024


class Linear:
    """y = x Wᵀ + b, with W [outputs, inputs] and x [n, inputs].

    On a CPU the weight is stored in oneDNN's blocked layout (about twice as fast as `F.linear` for
    few rows) and in float32 a row of the result depends on nothing but its own row of x: it is bit
    for bit the same in a block of any size.
    """

    __slots__ = ("_bias", "_pieces", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        self._weight: Tensor | None = None
        self._pieces: list[tuple[int, int, Tensor]] = []
        if not packs(weight):
            self._weight = weight.contiguous()
            return
        inputs = weight.shape[1]
        longest = _LONGEST_SUM if weight.dtype == torch.float32 else inputs
        for start in range(0, inputs, longest):
            stop = min(start + longest, inputs)
            self._pieces.append((start, stop, _pack(weight[:, start:stop])))

    def __call__(self, x: Tensor) -> Tensor:
        if self._weight is not None:
            return functional.linear(x, self._weight, self._bias)
        if len(self._pieces) == 1:
            return _multiply(x, self._pieces[0][2], self._bias)
        start, stop, packed = self._pieces[0]
        y = _multiply(x[:, start:stop], packed, self._bias)
        for start, stop, packed in self._pieces[1:]:
            y += _multiply(x[:, start:stop], packed, None)
        return y


class PackedLinear(nn.Module):
    """`Linear` in the place of a transformers model's own linear layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self._product = Linear(layer.weight, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The product of the last dimension."""
        return self._product(x.flatten(0, -2)).view(*x.shape[:-1], -1)


def pack_linear_layers(model: nn.Module) -> None:
    """Replace the linear layers of a model in place, where packing makes them faster."""
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Linear and packs(layer.weight):
            model.set_submodule(name, PackedLinear(layer))


def packs(weight: Tensor) -> bool:
    """Whether products with this weight are made in the packed layout."""
    return weight.device.type == "cpu" and _packing_works(weight.dtype)


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return packed


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y


@cache
def _packing_works(dtype: torch.dtype) -> bool:
    """Whether this build of torch has the two private operators and they compute the product."""
    x, weight = torch.eye(8, dtype=dtype), torch.arange(64, dtype=dtype).view(8, 8)
    try:
        return torch.equal(_multiply(x, _pack(weight), None), weight.T)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
