"""GGUF's blocks of 4 bits as the groups that are multiplied, codes unchanged (SPEC section 5)."""

from collections.abc import Callable, Mapping

import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from dragonrt.backends.torch_.int4 import Groups

_MIDDLE = 8
_HALF = 2  # bytes of a float16
_Q4_K_SCALES = slice(2 * _HALF, 2 * _HALF + 12)


def _q4_0(raw: Tensor) -> Groups:
    """w = d (code - 8): blocks of d and 32 codes, the first 16 in the low halves of bytes."""
    blocks = raw.view(len(raw), -1, 18)
    scales = _halves(blocks[..., :_HALF])
    return Groups(_codes(blocks[..., _HALF:]), scales, torch.zeros_like(scales))


def _q4_1(raw: Tensor) -> Groups:
    """w = d code + m."""
    blocks = raw.view(len(raw), -1, 20)
    scales, least = _halves(blocks[..., :_HALF]), _halves(blocks[..., _HALF : 2 * _HALF])
    return Groups(_codes(blocks[..., 2 * _HALF :]), scales, least + _MIDDLE * scales)


def _q4_k(raw: Tensor) -> Groups:
    """w = d s code - dmin m: blocks of d, dmin, eight s and m of 6 bits, and 256 codes."""
    blocks = raw.view(len(raw), -1, 144)
    d, least = _halves(blocks[..., :_HALF]), _halves(blocks[..., _HALF : 2 * _HALF])
    packed = blocks[..., _Q4_K_SCALES]
    low, middle, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    s = torch.cat((low & 63, (high & 15) | (low >> 6 << 4)), dim=-1)
    m = torch.cat((middle & 63, (high >> 4) | (middle >> 6 << 4)), dim=-1)
    scales = d[..., None] * s
    zeros = _MIDDLE * scales - least[..., None] * m
    # of each 32 bytes the low halves are one group, and the high halves the next
    codes = _codes(blocks[..., _Q4_K_SCALES.stop :].reshape(len(raw), -1, 32))
    return Groups(codes, scales.flatten(1), zeros.flatten(1))


DECODERS: Mapping[GGMLQuantizationType, Callable[[Tensor], Groups]] = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q4_K: _q4_k,
}
"""From a tensor's rows as bytes, uint8 [rows, row bytes]."""


def _halves(pairs: Tensor) -> Tensor:
    """float32 of pairs of bytes [..., 2]."""
    return pairs.contiguous().view(torch.float16)[..., 0].float()


def _codes(halves: Tensor) -> Tensor:
    """Bytes [rows, blocks, n] to codes [rows, blocks * 2 n], those of the low halves first."""
    return torch.cat((halves & 15, halves >> 4), dim=-1).flatten(1)
