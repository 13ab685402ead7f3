"""Linear layers with weights of 8 bits, where the CPU adds products of bytes by itself (VNNI).

A weight is stored as whole numbers of -127 to 127 with a scale per output. Inputs are taken as two
digits to the base 254, so that it is nearly only the weights that lose precision. Sums of whole
numbers are exact: no bit depends on rows, blocks or threads.
"""

from functools import cache

import torch
from torch import Tensor

from dragonrt.backends.torch_.linear import computes_rows, sample_weight

_LARGEST = 127
_ZERO = 128  # the kernel takes unsigned inputs
_SMALLEST_SCALE = 1e-30
_AT_ONCE = 2048  # outputs that are rounded together, which takes four times their memory


class QuantizedLinear:
    """y = x Wᵀ + b with W rounded: as `Linear`, and in half the memory of bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Raises RuntimeError where `can_quantize` says no."""
        scales = torch.cat([_scale(part.float()) for part in torch.split(weight, _AT_ONCE)])
        rounded = torch.empty(weight.shape, dtype=torch.int8)
        for start in range(0, len(weight), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            rounded[part] = (weight[part].float() / scales[part]).round_()
        self._packed: Tensor = torch.ops.onednn.qlinear_prepack(rounded, None)
        self._scales = scales[:, 0]
        self._zeros = torch.zeros(len(weight), dtype=torch.int64)
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        scales = _scale(x.float())
        scaled = x / scales
        high = scaled.round()
        low = (scaled - high).mul_(2 * _LARGEST).round_()
        digits = torch.cat((high, low)).add_(_ZERO).to(torch.uint8)
        high, low = _product(digits, self._packed, self._scales, self._zeros).chunk(2)
        y = low.div_(2 * _LARGEST).add_(high).mul_(scales)
        if self._bias is not None:
            y += self._bias
        return y.to(x.dtype)


@cache
def can_quantize() -> bool:
    """Return whether this CPU and this torch multiply bytes, and as they should."""
    return torch.cpu._is_vnni_supported() and computes_rows(
        QuantizedLinear, sample_weight(), atol=0.3
    )


def _scale(x: Tensor) -> Tensor:
    """Return the divisor of each row that puts it between -127 and 127: [n, 1]."""
    return x.abs().amax(dim=1, keepdim=True).clamp_(min=_SMALLEST_SCALE).div_(_LARGEST)


def _product(digits: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    y: Tensor = torch.ops.onednn.qlinear_pointwise(
        digits, 1.0, _ZERO, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return y
