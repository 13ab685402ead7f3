"""Linear layers with weights of 4 bits in groups of 32, multiplied by torch's own CPU kernel.

In float32 that kernel is fifteen times slower than in bfloat16, on every CPU.

w = (code - 8) · scale + zero, codes of 0 to 15, scale and zero in bfloat16 (SPEC section 5). GGUF's
Q4_0, Q4_1 and Q4_K are such groups: their codes pass through unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from dragonrt.backends.torch_.adapter import Update
from dragonrt.backends.torch_.linear import computes_rows, sample_weight

GROUP = 32
_MIDDLE, _LARGEST = 8, 15
_OUTPUTS = 16  # the kernel takes multiples of it
_SMALLEST_SCALE = 1e-8


@dataclass(frozen=True, slots=True)
class Groups:
    """W [outputs, inputs] as codes, uint8, with float32 scales and zeros [outputs, inputs / 32]."""

    codes: Tensor
    scales: Tensor
    zeros: Tensor

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    @classmethod
    def rounded(cls, weight: Tensor) -> Self:
        """Return the nearest codes between each group's least and greatest number."""
        grouped = weight.float().view(len(weight), -1, GROUP)
        least, greatest = grouped.amin(dim=2), grouped.amax(dim=2)
        scales = ((greatest - least) / _LARGEST).clamp(min=_SMALLEST_SCALE).bfloat16().float()
        zeros = (least + _MIDDLE * scales).bfloat16().float()
        codes = (grouped - zeros[..., None]).div_(scales[..., None]).add_(_MIDDLE)
        return cls(codes.round_().clamp_(0, _LARGEST).to(torch.uint8).flatten(1), scales, zeros)

    @classmethod
    def joined(cls, parts: Sequence["Groups"], dim: int = 0) -> Self:
        """Return several weights of the same inputs, or in `dim` 1 of the same outputs, as one."""
        fields = ([getattr(part, name) for part in parts] for name in ("codes", "scales", "zeros"))
        return cls(*(torch.cat(tensors, dim) for tensors in fields))

    def dense(self) -> Tensor:
        """Return W in float32."""
        grouped = self.codes.float().sub_(_MIDDLE).view(*self.scales.shape, GROUP)
        return grouped.mul_(self.scales[..., None]).add_(self.zeros[..., None]).flatten(1)


class Int4Linear:
    """y = x Wᵀ + b, rounded to bfloat16. A row of y depends on nothing but its own row of x.

    With an update it is (W B) (x, A x): B, of 4 bits like A, lies beside W in one product.
    """

    def __init__(self, weight: Groups, bias: Tensor | None, update: Update | None = None) -> None:
        """Raises RuntimeError where `can_multiply_int4` says no."""
        self._down = None
        if update is not None:
            self._down = Int4Linear(Groups.rounded(update.down), None)
            weight = Groups.joined((weight, Groups.rounded(update.up)), dim=1)
        self._outputs = weight.shape[0]
        missing = -self._outputs % _OUTPUTS
        codes = functional.pad(weight.codes, (0, 0, 0, missing)).int()
        self._packed: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        both = torch.stack((weight.scales, weight.zeros), dim=2)
        both = functional.pad(both, (0, 0, 0, 0, 0, missing))
        self._scales_and_zeros = both.transpose(0, 1).bfloat16().contiguous()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        x = x.bfloat16()
        if self._down is not None:
            x = torch.cat((x, self._down(x)), dim=1)
        y = torch._weight_int4pack_mm_for_cpu(x, self._packed, GROUP, self._scales_and_zeros)
        if y.shape[1] > self._outputs:
            y = y[:, : self._outputs]
        return y if self._bias is None else y + self._bias


def joined_update(updates: Sequence[Update | None], outputs: Sequence[int]) -> Update:
    """Return the updates of joined layers of these sizes as one, as `Int4Linear` takes it."""
    return Update.joined([update and _in_digits(update) for update in updates], outputs)


def _in_digits(update: Update) -> Update:
    """Return an update with A as 4 bits hold it, what they lose of it, and B for each.

    With a rank of 16 they fill a group, half of which would be empty.
    """
    lost = update.down - Groups.rounded(update.down).dense()
    down, up = torch.cat((update.down, lost)), torch.cat((update.up, update.up), dim=1)
    missing = -len(down) % GROUP
    return Update(functional.pad(down, (0, 0, 0, missing)), functional.pad(up, (0, missing)))


@cache
def can_multiply_int4() -> bool:
    """Return whether this torch has the two private operators, with vectors of this CPU.

    Elsewhere weights of 4 bits are dequantised: on ARM, too, whose kernels were not tried.
    """
    if not (torch.cpu._is_avx2_supported() or torch.cpu._is_avx512_supported()):
        return False
    weight = Groups.rounded(sample_weight()).dense()
    return computes_rows(lambda w: Int4Linear(Groups.rounded(w), None), weight, atol=0.3)
