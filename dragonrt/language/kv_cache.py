"""The keys and values of several rows, and attention over them.

A row's token at position i lies in column i, so rows of different lengths need no padding before
their tokens, only masking behind them. On the CPU in float32 every query is computed by the same
kernel over the same shape whichever block and batch it comes in (a multiple of `_TILE` keys, one
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

# Attention kernels work in tiles of columns: masked columns in whole tiles change no bit.
_TILE = 32
# The product of more query heads than this with their key head sums in an order that depends on the
# number of columns.
_LARGEST_GROUP = 3


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Where T new tokens of R rows go. Flattened sizes are row-major: [R * T]."""

    positions: Tensor  # [R * T] position of each new token in its row
    slots: Tensor  # [R * T] its place in a layer's buffer
    mask: Tensor  # [R, T, columns] 0 where a query may look, -inf elsewhere


class KvCache:
    """Preallocated keys and values of every layer, each written in place."""

    def __init__(self, geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> None:
        self._geometry = geometry
        self._documents = [document.length for document in documents]
        self._lengths = torch.tensor(self._documents, device=geometry.device)[:, None]
        self._reproducible = geometry.device.type == "cpu" and geometry.dtype == torch.float32
        self._open, self._closed = torch.tensor(
            [0.0, float("-inf")], dtype=geometry.dtype, device=geometry.device
        )
        self._allocate(capacity)
        for row, document in enumerate(documents):
            for buffer, stored in zip(self._keys, document.keys, strict=True):
                buffer[row, :, : document.length] = stored
            for buffer, stored in zip(self._values, document.values, strict=True):
                buffer[row, :, : document.length] = stored

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` shared tokens, at least doubling the buffers if they grow."""
        if tokens <= self._capacity:
            return
        old, columns = self._keys + self._values, self._columns.shape[0]
        self._allocate(max(tokens, 2 * self._capacity))
        for new, stored in zip(self._keys + self._values, old, strict=True):
            new[:, :, :columns] = stored

    def read(self, row: int, length: int) -> DocumentKV:
        """A copy of a row's first `length` columns."""

        def copies(buffers: list[Tensor]) -> tuple[Tensor, ...]:
            return tuple(buffer[row, :, :length].contiguous().cpu() for buffer in buffers)

        return DocumentKV(copies(self._keys), copies(self._values))

    def block(self, length: int, tokens: int) -> BlockLayout:
        """The places of `tokens` new tokens behind `length` shared ones."""
        positions = self._lengths + self._columns[length : length + tokens]
        needed = max(self._documents) + length + tokens
        columns = -(-needed // _TILE) * _TILE
        visible = self._columns[:columns] <= positions[:, :, None]
        return BlockLayout(
            positions.flatten(),
            (positions + self._starts).flatten(),
            torch.where(visible, self._open, self._closed),
        )

    def write(self, layer: int, keys: Tensor, values: Tensor, block: BlockLayout) -> None:
        """Store a layer's keys and values [R * T, kv heads, head dim] of new tokens."""
        self._key_slots[layer].index_copy_(0, block.slots, keys)
        self._value_slots[layer].index_copy_(0, block.slots, values)

    def attend(self, layer: int, queries: Tensor, block: BlockLayout) -> Tensor:
        """Attention of queries [R * T, heads, head dim] over a layer's columns: [R * T, hidden]."""
        rows, tokens, columns = block.mask.shape
        keys = self._keys[layer].narrow(2, 0, columns)
        values = self._values[layer].narrow(2, 0, columns)
        heads, head_dim = keys.shape[1], keys.shape[3]
        # queries that share a key head form one product: [rows, tokens, kv heads, group, head dim]
        grouped = queries.view(rows, tokens, heads, -1, head_dim)
        group = grouped.shape[3]
        if tokens == 1 and (group <= _LARGEST_GROUP or not self._reproducible):
            mask = block.mask[:, :, None].expand(rows, 1, group, columns)
            return _attention(grouped[:, 0], keys, values, mask).reshape(rows, -1)
        if not self._reproducible:
            folded = grouped.permute(0, 2, 1, 3, 4).reshape(rows, heads, tokens * group, head_dim)
            mask = block.mask[:, None, :, None].expand(rows, 1, tokens, group, columns)
            mixed = _attention(folded, keys, values, mask.reshape(rows, 1, -1, columns))
            mixed = mixed.view(rows, heads, tokens, group, head_dim).permute(0, 2, 1, 3, 4)
            return mixed.reshape(rows * tokens, -1)
        # every position (and part of a large group) is a batch entry of its own, over the same keys
        part = next(size for size in range(_LARGEST_GROUP, 0, -1) if group % size == 0)
        batch = tokens * group // part
        parted = grouped.view(rows, tokens, heads, -1, part, head_dim).transpose(2, 3)
        mixed_rows = []
        for row in range(rows):
            mixed = _attention(
                parted[row].reshape(batch, heads, part, head_dim),
                keys[row].expand(batch, heads, columns, head_dim),
                values[row].expand(batch, heads, columns, head_dim),
                block.mask[row]
                .repeat_interleave(batch // tokens, dim=0)[:, None, None]
                .expand(batch, 1, part, columns),
            )
            mixed = mixed.view(tokens, -1, heads, part, head_dim).transpose(1, 2)
            mixed_rows.append(mixed.reshape(tokens, -1))
        return torch.cat(mixed_rows)

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        rows, geometry = len(self._documents), self._geometry
        total = -(-(max(self._documents) + capacity) // _TILE) * _TILE
        device = geometry.device
        self._starts = torch.arange(rows, device=device)[:, None] * total
        self._columns = torch.arange(total, device=device)

        def buffers() -> tuple[list[Tensor], list[Tensor]]:
            # zeros, for masked columns are multiplied by zero and must be finite
            slots = [
                torch.zeros(
                    (rows * total, layer.heads, layer.key_dim), dtype=geometry.dtype, device=device
                )
                for layer in geometry.layers
            ]
            return slots, [
                slot.view(rows, total, *slot.shape[1:]).transpose(1, 2) for slot in slots
            ]

        # the same memory twice: [rows * total, heads, head dim] and [rows, heads, total, head dim]
        self._key_slots, self._keys = buffers()
        self._value_slots, self._values = buffers()


def _attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
