"""The keys and values of several rows, and attention over them.

A row's token at position i lies in column i, so rows of different lengths need no padding before
their tokens, only masking behind them. On the CPU in float32 every query is computed by the same
kernel over the same shape whichever block and batch it comes in (a multiple of `_COLUMNS` keys, one
position per product): a row's numbers do not depend on the other rows nor on how its tokens were
cut into blocks, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dragonrt.language.decoder import Geometry
from dragonrt.language.document import DocumentKV

# Attention kernels work in tiles of columns; masked columns up to a full tile change no bit.
_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class Block:
    """Where T new tokens of R rows go. Flattened sizes are row-major: [R * T]."""

    positions: Tensor  # [R * T] position of each new token in its row
    slots: Tensor  # [R * T] its place in a layer's buffer
    columns: int  # how many columns are attended to, masked ones included
    mask: Tensor  # [R, T, columns] 0 where a query may look, -inf elsewhere


class Rows:
    """Preallocated keys and values [rows * capacity, kv heads, head dim] of every layer."""

    def __init__(self, geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> None:
        self._geometry = geometry
        self._documents = [document.length for document in documents]
        self._lengths = torch.tensor(self._documents, device=geometry.device)
        self._allocate(capacity)
        for row, document in enumerate(documents):
            for layer in range(len(geometry.layers)):
                self._view(self.keys[layer])[row, : document.length] = document.keys[
                    layer
                ].transpose(0, 1)
                self._view(self.values[layer])[row, : document.length] = document.values[
                    layer
                ].transpose(0, 1)

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` shared tokens, at least doubling the buffers if they grow."""
        if tokens <= self._capacity:
            return
        old_keys, old_values = self.keys, self.values
        old_columns = self._total
        self._allocate(max(tokens, 2 * self._capacity))
        rows = len(self._documents)
        for new, old in zip(self.keys + self.values, old_keys + old_values, strict=True):
            self._view(new)[:, :old_columns] = old.view(rows, old_columns, *old.shape[1:])

    def read(self, row: int, length: int) -> DocumentKV:
        """A copy of a row's first `length` columns."""

        def copies(buffers: list[Tensor]) -> tuple[Tensor, ...]:
            return tuple(
                self._view(buffer)[row, :length].transpose(0, 1).contiguous().cpu()
                for buffer in buffers
            )

        return DocumentKV(copies(self.keys), copies(self.values))

    def block(self, length: int, tokens: int) -> Block:
        """The places of `tokens` new tokens behind `length` shared ones."""
        device = self._geometry.device
        steps = torch.arange(length, length + tokens, device=device)
        positions = self._lengths[:, None] + steps
        needed = max(self._documents) + length + tokens
        columns = -(-needed // _COLUMNS) * _COLUMNS
        hidden = self._all_columns[:columns] > positions[:, :, None]
        mask = torch.zeros(hidden.shape, dtype=self._geometry.dtype, device=device)
        return Block(
            positions.flatten(),
            (positions + self._starts).flatten(),
            columns,
            mask.masked_fill_(hidden, float("-inf")),
        )

    def attend(self, layer: int, queries: Tensor, block: Block) -> Tensor:
        """Attention of queries [R * T, heads, head dim] over a layer's columns, same shape out."""
        rows, tokens, columns = block.mask.shape
        keys = self._view(self.keys[layer])[:, :columns].transpose(1, 2)
        values = self._view(self.values[layer])[:, :columns].transpose(1, 2)
        heads, head_dim = keys.shape[1], keys.shape[3]
        # queries that share a key head form one product: [rows, tokens, kv heads, group, head dim]
        grouped = queries.view(rows, tokens, heads, -1, head_dim)
        group = grouped.shape[3]
        if tokens == 1:
            mask = block.mask[:, :, None].expand(rows, 1, group, columns)
            return _attention(grouped[:, 0], keys, values, mask).reshape(queries.shape)
        if not self._reproducible:
            folded = grouped.permute(0, 2, 1, 3, 4).reshape(rows, heads, tokens * group, head_dim)
            mask = block.mask[:, None, :, None].expand(rows, 1, tokens, group, columns)
            mixed = _attention(folded, keys, values, mask.reshape(rows, 1, -1, columns))
            mixed = mixed.view(rows, heads, tokens, group, head_dim).permute(0, 2, 1, 3, 4)
            return mixed.reshape(queries.shape)
        return torch.cat(
            [
                _attention(
                    grouped[row],
                    keys[row].expand(tokens, heads, columns, head_dim),
                    values[row].expand(tokens, heads, columns, head_dim),
                    block.mask[row, :, None, None].expand(tokens, 1, group, columns),
                ).reshape(tokens, -1, head_dim)
                for row in range(rows)
            ]
        )

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        needed = max(self._documents) + capacity
        self._total = -(-needed // _COLUMNS) * _COLUMNS
        rows, geometry = len(self._documents), self._geometry
        device, dtype = geometry.device, geometry.dtype
        shape = [(rows * self._total, layer.heads, layer.key_dim) for layer in geometry.layers]
        # zeros, for masked columns are multiplied by zero and must be finite
        self.keys = [torch.zeros(size, dtype=dtype, device=device) for size in shape]
        self.values = [torch.zeros(size, dtype=dtype, device=device) for size in shape]
        self._starts = torch.arange(rows, device=device)[:, None] * self._total
        self._all_columns = torch.arange(self._total, device=device)
        self._reproducible = device.type == "cpu" and dtype == torch.float32

    def _view(self, buffer: Tensor) -> Tensor:
        return buffer.view(len(self._documents), self._total, *buffer.shape[1:])


def _attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
