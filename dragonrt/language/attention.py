"""Attention of new tokens over a cache's columns, with bits that depend on a query's row alone.

On a CPU the product of weights and values sums in an order that may depend on how many queries
there are and on the number of columns, so each type has a scheme in which it does not:

- float32: a product takes at most three queries of one position, every position being a batch entry
  of its own over the same keys. So few are summed in the order of the columns.
- bfloat16: a product takes at least four queries (fewer are filled up) and always 512 columns, as
  many as the kernel takes at a time, so that its shape is always the same.

Elsewhere (GPUs, float16) queries are taken together as they come.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_LARGEST_GROUP = 3  # queries of one float32 product
_FEWEST_QUERIES = 4  # of one bfloat16 product


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


def column_tile(dtype: torch.dtype, device: torch.device) -> int:
    """Columns are read in multiples of this; masked ones in whole tiles change no bit."""
    return 512 if device.type == "cpu" and dtype == torch.bfloat16 else 32


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, form: AttentionForm
) -> Tensor:
    """The values, mixed for every query.

    Args:
        queries: [rows, tokens, kv heads, group, head dim]; a group shares a key head.
        keys: [rows, kv heads, columns, head dim], and `values` likewise; columns in whole tiles.
        mask: [rows, tokens, columns], 0 where a query may look, -inf elsewhere.

    Returns [rows * tokens, heads * value dim].
    """
    on_cpu = queries.device.type == "cpu"
    if form.soft_cap is not None or (on_cpu and queries.dtype == torch.float32):
        return _by_position(queries, keys, values, mask, form)
    return _together(queries, keys, values, mask, form, _FEWEST_QUERIES if on_cpu else 1)


def _together(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, form: AttentionForm, fewest: int
) -> Tensor:
    """All queries of a row and key head in one product, their number a multiple of `fewest`."""
    rows, tokens, heads, group, head_dim = queries.shape
    folded = queries.permute(0, 2, 1, 3, 4).reshape(rows, heads, tokens * group, head_dim)
    masks = mask.repeat_interleave(group, dim=1) if group > 1 else mask
    if missing := -folded.shape[2] % fewest:
        folded = functional.pad(folded, (0, 0, 0, missing))
        masks = functional.pad(masks, (0, 0, 0, missing))  # they look everywhere, at no one's cost
    mixed = functional.scaled_dot_product_attention(
        folded, keys, values, attn_mask=masks[:, None], scale=form.scale
    )
    mixed = mixed[:, :, : tokens * group].view(rows, heads, tokens, group, -1)
    return mixed.permute(0, 2, 1, 3, 4).reshape(rows * tokens, -1)


def _by_position(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, form: AttentionForm
) -> Tensor:
    """Every position, and part of a large group, by itself."""
    rows, tokens, heads, group, head_dim = queries.shape
    if tokens == 1 and group <= _LARGEST_GROUP and form.soft_cap is None:
        columns = mask.shape[2]
        masks = mask[:, :, None].expand(rows, 1, group, columns)
        mixed = functional.scaled_dot_product_attention(
            queries[:, 0], keys, values, attn_mask=masks, scale=form.scale
        )
        return mixed.reshape(rows, -1)
    part = next(size for size in range(_LARGEST_GROUP, 0, -1) if group % size == 0)
    parted = queries.view(rows, tokens, heads, -1, part, head_dim).transpose(2, 3)
    attend_row = _row if form.soft_cap is None else _capped_row
    mixed_rows = []
    for row in range(rows):
        mixed = attend_row(
            parted[row].reshape(-1, heads, part, head_dim),
            keys[row],
            values[row],
            mask[row].repeat_interleave(group // part, dim=0),
            form,
        )
        mixed = mixed.view(tokens, -1, heads, part, mixed.shape[-1]).transpose(1, 2)
        mixed_rows.append(mixed.reshape(tokens, -1))
    return torch.cat(mixed_rows)


def _row(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, form: AttentionForm
) -> Tensor:
    """Queries [n, heads, part, head dim] over a row's keys [heads, columns, head dim]."""
    number, _, part, _ = queries.shape
    return functional.scaled_dot_product_attention(
        queries,
        keys.expand(number, *keys.shape),
        values.expand(number, *values.shape),
        attn_mask=mask[:, None, None].expand(number, 1, part, mask.shape[1]),
        scale=form.scale,
    )


def _capped_row(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, form: AttentionForm
) -> Tensor:
    """Like `_row`, with soft-capped scores and in float32, whatever the type."""
    number, heads, _, head_dim = queries.shape
    cap = 1.0 if form.soft_cap is None else form.soft_cap
    scale = (head_dim**-0.5 if form.scale is None else form.scale) / cap
    mixed = []
    for head in range(heads):
        asked = queries[:, head].float() * scale
        head_keys = keys[head].float().T.expand(number, head_dim, mask.shape[1])
        scores = torch.bmm(asked, head_keys).tanh_().mul_(cap).add_(mask[:, None])
        head_values = values[head].float()
        mixed.append(torch.bmm(scores.softmax(-1), head_values.expand(number, *head_values.shape)))
    return torch.stack(mixed, dim=1).to(queries.dtype)
