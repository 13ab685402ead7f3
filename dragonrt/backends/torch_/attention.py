"""Attention of new tokens over a cache's columns, with bits that depend on a query's row alone.

The product of weights and values sums in an order that may depend on how many queries there are
and on the number of columns. On a CPU it does not if three rules hold, by measurement: the product
is in float32, the number of queries is a multiple of four, and the number of columns follows from
the query's own position alone. So every query reads whole tiles of columns up to its own, and
missing queries are filled up.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_QUERIES = 4
_TILE = 64  # columns; smaller ones mean more products in a block of tokens
_LARGE_TILE = 512


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """What architectures vary: the score is `scale` q·k (None: by √head dim).

    `window` is how many columns up to its own a query looks at, None all; `soft_cap` bounds scores
    by c · tanh(score / c) (Gemma 2).
    """

    scale: float | None = None
    window: int | None = None
    soft_cap: float | None = None


PLAIN = AttentionForm()


def attention_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the type in which attention is computed over a cache of `dtype`."""
    return torch.float32 if device.type == "cpu" else dtype


@dataclass(frozen=True, slots=True)
class Tile:
    """Neighbouring rows and tokens of a block whose queries read the same number of columns."""

    rows: slice
    tokens: slice
    columns: int


def tiles(firsts: list[int], tokens: int, device: torch.device) -> list[Tile]:
    """Part a block of `tokens` tokens per row, of which a row's first one has position firsts[row].

    Other devices than a CPU read all rows and tokens at once.
    """
    if device.type != "cpu":
        needed = max(firsts) + tokens
        columns = -(-needed // _LARGE_TILE) * _LARGE_TILE
        return [Tile(slice(0, len(firsts)), slice(0, tokens), columns)]
    parts, row = [], 0
    while row < len(firsts):
        cuts, last = _cuts(firsts[row], tokens), row + 1
        while last < len(firsts) and _cuts(firsts[last], tokens) == cuts:
            last += 1
        parts += [Tile(slice(row, last), part, columns) for part, columns in cuts]
        row = last
    return parts


def columns_beyond(device: torch.device) -> int:
    """Return how many columns a tile may reach beyond the last token."""
    return _TILE if device.type == "cpu" else _LARGE_TILE


def mask(
    positions: Tensor, columns: int, window: int | None, group: int, dtype: torch.dtype
) -> Tensor:
    """Return 0 where a query may look and -inf elsewhere.

    Args:
        positions: [R, T], those of the tokens.
        group: queries per token and key head.

    Returns [R, 1, queries, columns]; queries that fill up look everywhere.
    """
    numbers = torch.arange(columns, device=positions.device)
    own = positions[:, :, None]
    hidden = numbers > own
    if window is not None:
        hidden |= numbers <= own - window
    hidden = hidden.repeat_interleave(group, dim=1)
    hidden = functional.pad(hidden, (0, 0, 0, -hidden.shape[1] % _QUERIES))
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, -torch.inf
    )[:, None]


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, blocked: Tensor, form: AttentionForm
) -> Tensor:
    """Mix values by attention.

    Args:
        queries: [R, T, key heads, group, head dim].
        keys, values: [R, key heads, columns, head dim], of the same type.
        blocked: as `mask` returns.

    Returns [R, T, key heads * group * head dim].
    """
    rows, tokens, heads, group, head_dim = queries.shape
    folded = queries.transpose(1, 2).reshape(rows, heads, tokens * group, head_dim)
    if missing := -folded.shape[2] % _QUERIES:
        folded = functional.pad(folded, (0, 0, 0, missing))
    if form.soft_cap is None:
        mixed = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=blocked, scale=form.scale
        )
    else:
        mixed = _capped(folded, keys, values, blocked, form.scale or head_dim**-0.5, form.soft_cap)
    mixed = mixed[:, :, : tokens * group]
    if tokens > 1:
        mixed = mixed.view(rows, heads, tokens, group, -1).transpose(1, 2)
    return mixed.reshape(rows, tokens, -1)


def _capped(
    queries: Tensor, keys: Tensor, values: Tensor, blocked: Tensor, scale: float, cap: float
) -> Tensor:
    """Attend with soft-capped scores, every four queries by themselves."""
    parts = []
    for start in range(0, queries.shape[2], _QUERIES):
        part = slice(start, start + _QUERIES)
        scores = torch.matmul(queries[:, :, part] * (scale / cap), keys.transpose(-1, -2))
        weights = scores.tanh_().mul_(cap).add_(blocked[:, :, part]).softmax(-1)
        parts.append(torch.matmul(weights, values))
    return torch.cat(parts, dim=2)


def _cuts(first: int, tokens: int) -> list[tuple[slice, int]]:
    """Return (tokens, columns) of a row's tokens from this position on."""
    ends = range(first // _TILE * _TILE + _TILE, first + tokens + _TILE, _TILE)
    return [(slice(max(0, end - _TILE - first), min(tokens, end - first)), end) for end in ends]
