"""Attention of new tokens over a cache's columns, with bits that depend on a query's row alone.

On a CPU the product of weights and values sums in an order that may depend on how many queries
there are and on the number of columns. There are two schemes in which it does not:

- by position: a product takes two queries of one position (a single one is filled up), every
  position being a batch entry of its own over the same keys. So few are summed in the order of the
  columns; for one or three that would depend on the thread, for their scores are aligned in the
  memory of the first thread alone. Quick for few tokens behind a short text in float32.
- together: all queries are taken at once, in multiples of four (fewer are filled up), over whole
  tiles of columns. Quick for many tokens, and always in bfloat16. In float32 a tile has 512
  columns, as many as the kernel takes at a time. In bfloat16 it has 128, and a query reads as many
  as its own position needs: more of them would change its bits, though they are masked.

They differ in their last bits, so it is not the size of a block that chooses but what a token is:
in float32, one of a prompt or of an answer.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_PAIR = 2  # queries of one product by position
_FEWEST_QUERIES = 4


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


LARGEST_TILE = 512
_TILE_BY_POSITION = 32
_OWN_TILE = 128


def attends_by_position(dtype: torch.dtype, device: torch.device, *, prompt: bool) -> bool:
    """Whether the tokens of an answer, or of a prompt, are attended from by position."""
    return device.type == "cpu" and dtype == torch.float32 and not prompt


def column_tile(*, by_position: bool) -> int:
    """Columns are read in multiples of this; masked ones in whole tiles change no bit."""
    return _TILE_BY_POSITION if by_position else LARGEST_TILE


def own_tile(dtype: torch.dtype, device: torch.device) -> int | None:
    """The tile in which a query reads as many columns as its own position needs, if it does."""
    return _OWN_TILE if device.type == "cpu" and dtype == torch.bfloat16 else None


class Masks:
    """Where the queries of R rows and T tokens may look: 0 there, -inf elsewhere.

    Made once for all layers that look alike.
    """

    __slots__ = ("_blocked", "_columns", "_folded", "_plain", "_positions", "by_position")

    def __init__(
        self, positions: Tensor, columns: Tensor, blocked: Tensor, *, by_position: bool
    ) -> None:
        """Positions [R, T] of the tokens, the columns' numbers, and -inf in the model's type."""
        self.by_position = by_position
        self._positions, self._columns, self._blocked = positions, columns, blocked
        self._plain: dict[int | None, Tensor] = {}
        self._folded: dict[tuple[int | None, int, int], Tensor] = {}

    @property
    def columns(self) -> int:
        """How many columns they cover."""
        return self._columns.shape[0]

    def plain(self, window: int | None) -> Tensor:
        """[R, T, columns]"""
        if window not in self._plain:
            positions = self._positions[:, :, None]
            hidden = self._columns > positions
            if window is not None:
                hidden |= self._columns <= positions - window
            self._plain[window] = torch.where(
                hidden, self._blocked, torch.zeros_like(self._blocked)
            )
        return self._plain[window]

    def folded(self, window: int | None, group: int, missing: int) -> Tensor:
        """[R, 1, T * group + missing, columns]; what is missing looks everywhere, at no cost."""
        key = (window, group, missing)
        if key not in self._folded:
            masks = self.plain(window).repeat_interleave(group, dim=1)
            self._folded[key] = functional.pad(masks, (0, 0, 0, missing))[:, None]
        return self._folded[key]


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, masks: Masks, form: AttentionForm
) -> Tensor:
    """The values, mixed for every query.

    Args:
        queries: [rows, tokens, kv heads, group, head dim]; a group shares a key head.
        keys: [rows, kv heads, columns, head dim], and `values` likewise; columns in whole tiles.
        masks: of the rows, tokens and columns.

    Returns [rows * tokens, heads * value dim].
    """
    if form.soft_cap is not None or masks.by_position:
        return _by_position(queries, keys, values, masks.plain(form.window), form)
    return _together(queries, keys, values, masks, form)


def _together(
    queries: Tensor, keys: Tensor, values: Tensor, masks: Masks, form: AttentionForm
) -> Tensor:
    """All queries of a row and key head in one product."""
    rows, tokens, heads, group, head_dim = queries.shape
    folded = queries.permute(0, 2, 1, 3, 4).reshape(rows, heads, tokens * group, head_dim)
    if missing := -folded.shape[2] % _FEWEST_QUERIES:
        folded = functional.pad(folded, (0, 0, 0, missing))
    mask = masks.folded(form.window, group, missing)
    mixed = functional.scaled_dot_product_attention(
        folded, keys, values, attn_mask=mask, scale=form.scale
    )
    mixed = mixed[:, :, : tokens * group].view(rows, heads, tokens, group, -1)
    return mixed.permute(0, 2, 1, 3, 4).reshape(rows * tokens, -1)


def _by_position(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, form: AttentionForm
) -> Tensor:
    """Every position, and every two queries of a group, by themselves."""
    group = queries.shape[3]
    if missing := -group % _PAIR:
        queries = functional.pad(queries, (0, 0, 0, missing))
    rows, tokens, heads, filled, head_dim = queries.shape
    if tokens == 1 and filled == _PAIR and form.soft_cap is None:
        columns = mask.shape[2]
        masks = mask[:, :, None].expand(rows, 1, filled, columns)
        mixed = functional.scaled_dot_product_attention(
            queries[:, 0], keys, values, attn_mask=masks, scale=form.scale
        )
        return mixed[:, :, :group].reshape(rows, -1)
    parted = queries.view(rows, tokens, heads, -1, _PAIR, head_dim).transpose(2, 3)
    attend_row = _row if form.soft_cap is None else _capped_row
    mixed_rows = []
    for row in range(rows):
        mixed = attend_row(
            parted[row].reshape(-1, heads, _PAIR, head_dim),
            keys[row],
            values[row],
            mask[row].repeat_interleave(filled // _PAIR, dim=0),
            form,
        )
        mixed = mixed.view(tokens, -1, heads, _PAIR, mixed.shape[-1]).transpose(1, 2)
        mixed_rows.append(mixed.flatten(2, 3)[:, :, :group].reshape(tokens, -1))
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
