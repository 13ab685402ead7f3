"""The keys and values of several rows, one behind a document each.

A row's token at position i lies in column i, so rows of different lengths need no padding before
their tokens, only masking behind them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dragonrt.backends.torch_.attention import (
    AttentionForm,
    Tile,
    attend,
    attention_dtype,
    columns_beyond,
    mask,
    tiles,
)
from dragonrt.backends.torch_.backend import Geometry
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.backends.torch_.pages import PAGE, Pages, paged


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Where T new tokens of R rows go. Flattened sizes are row-major: [R * T]."""

    positions: Tensor  # [R, T] position of each new token in its row
    slots: Tensor  # [R * T] its place in a layer's buffer
    tiles: list[Tile]
    masks: dict[tuple[int, int | None], Tensor] = field(default_factory=dict)  # by tile and window


class KvCache:
    """Keys and values of every layer, each written in place, in memory reserved for all of them.

    Layers and rows lie one behind another; a token's keys and values lie side by side. What is
    read of a row in whole tiles of columns may reach into the next one: that is masked. Documents
    in shared pages are only shown.
    """

    def __init__(self, geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> None:
        """The geometry's layers are all of one shape, whose keys are as long as values."""
        self._geometry = geometry
        self._heads = geometry.layers[0].heads
        self._attention_dtype = attention_dtype(geometry.dtype, geometry.device)
        self._documents = [document.length for document in documents]
        self._shown = [each for each in documents if each.pages is not None]  # a pool counts them
        self._lengths = torch.tensor(self._documents, device=geometry.device)[:, None]
        self._allocate(capacity)
        for row, document in enumerate(documents):
            if not self._show(row, document):
                stored = zip(self._rows, document.keys, document.values, strict=True)
                for rows, keys, values in stored:
                    own = rows[row, : document.length].transpose(0, 1)
                    own[: self._heads], own[self._heads :] = keys, values

    @staticmethod
    def memory(geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> int:
        longest = max(document.length for document in documents)
        on_pages = geometry.device.type == "cpu"  # of which the last ones may never be written
        column = _column_bytes(geometry)
        return len(geometry.layers) * sum(
            paged(((document.length if on_pages else longest) + capacity) * column)
            - (document.length * column // PAGE * PAGE if document.pages is not None else 0)
            for document in documents
        )

    @torch.inference_mode()
    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` shared tokens, at least doubling the buffers if they grow."""
        if tokens <= self._capacity:
            return
        old = self._rows
        self._allocate(max(tokens, 2 * self._capacity))
        for new, stored in zip(self._rows, old, strict=True):
            new[:, : stored.shape[1]] = stored

    def document(self, row: int, length: int) -> DocumentKV:
        parts = [
            torch.split(rows[row, :length].transpose(0, 1).contiguous().cpu(), self._heads)
            for rows in self._rows
        ]
        return DocumentKV(tuple(keys for keys, _ in parts), tuple(values for _, values in parts))

    def layout(self, length: int, tokens: int) -> BlockLayout:
        """Return where `tokens` new ones go behind `length` shared ones."""
        positions = self._lengths + self._columns[length : length + tokens]
        firsts = [document + length for document in self._documents]
        parts = tiles(firsts, tokens, self._geometry.device)
        return BlockLayout(positions, (positions + self._starts).flatten(), parts)

    def write(self, layer: int, keys_values: Tensor, layout: BlockLayout) -> None:
        """Store a layer's keys and values [R * T, 2 * kv heads, head dim] of new tokens."""
        self._slots[layer].index_copy_(0, layout.slots, keys_values.to(self._geometry.dtype))

    def attend(
        self, layer: int, queries: Tensor, layout: BlockLayout, form: AttentionForm
    ) -> Tensor:
        """Attend from queries [R * T, heads, head dim] to a layer's columns: [R * T, hidden]."""
        rows, tokens = layout.positions.shape
        grouped = queries.view(rows, tokens, self._heads, -1, queries.shape[-1])
        mixed = []
        for number, tile in enumerate(layout.tiles):
            seen = self._seen(tile)[layer]
            keys, values = torch.split(seen.to(self._attention_dtype), self._heads, dim=1)
            key = (number, form.window)
            if key not in layout.masks:
                positions = layout.positions[tile.rows, tile.tokens]
                layout.masks[key] = mask(
                    positions, tile.columns, form.window, grouped.shape[3], self._attention_dtype
                )
            part = grouped if len(layout.tiles) == 1 else grouped[tile.rows, tile.tokens]
            mixed.append(attend(part, keys, values, layout.masks[key], form))
        if len(mixed) == 1:
            return mixed[0].flatten(0, 1)
        whole = mixed[0].new_empty(rows, tokens, mixed[0].shape[2])
        for tile, part in zip(layout.tiles, mixed, strict=True):
            whole[tile.rows, tile.tokens] = part
        return whole.flatten(0, 1)

    def _seen(self, tile: Tile) -> list[Tensor]:
        """Return what a tile reads of each layer: [rows, 2 * kv heads, columns, head dim]."""
        key = (tile.rows.start, tile.rows.stop, tile.columns)
        if key not in self._views:
            parts = (_first(rows[tile.rows], tile.columns) for rows in self._rows)
            self._views[key] = [part.transpose(1, 2) for part in parts]
        return self._views[key]

    def _allocate(self, capacity: int) -> None:
        """Reserve zeros: masked columns are multiplied by zero and must be finite.

        A tile behind it all is for what the last row reads beyond its end.
        """
        geometry, rows = self._geometry, len(self._documents)
        self._capacity = capacity
        device, layers, width = geometry.device, len(geometry.layers), _column_bytes(geometry)
        total = max(self._documents) + capacity
        if device.type == "cpu":  # every row begins a page
            whole = PAGE // math.gcd(PAGE, width)
            total = -(-total // whole) * whole
        beyond = columns_beyond(device)
        self._starts = torch.arange(rows, device=device)[:, None] * total
        self._columns = torch.arange(total, device=device)
        number = layers * rows * total
        self._pages = Pages((number + beyond) * width, device)
        memory = self._pages.bytes.view(geometry.dtype).view(
            -1, 2 * self._heads, geometry.layers[0].key_dim
        )
        slots = memory[:number].view(layers, rows * total, *memory.shape[1:])
        self._slots: tuple[Tensor, ...] = slots.unbind()
        self._rows: tuple[Tensor, ...] = slots.view(layers, rows, total, *memory.shape[1:]).unbind()
        self._views: dict[tuple[int, int, int], list[Tensor]] = {}

    def _show(self, row: int, document: DocumentKV) -> bool:
        """Have a row begin with a document, if that lies in shared pages."""
        if document.pages is None:
            return False
        column = _column_bytes(self._geometry)
        total, rows = self._rows[0].shape[1] * column, len(self._documents)
        for layer, start in enumerate(document.starts):
            at = (layer * rows + row) * total
            self._pages.show(document.pages, start, document.length * column, at)
        return True


def _column_bytes(geometry: Geometry) -> int:
    """Return the bytes of a token's keys and values in one layer."""
    shape = geometry.layers[0]
    return shape.heads * (shape.key_dim + shape.value_dim) * geometry.dtype.itemsize


def _first(rows: Tensor, columns: int) -> Tensor:
    """Return rows [rows, total, heads, size] as if each had this many columns."""
    shape = (rows.shape[0], columns, *rows.shape[2:])
    return rows.as_strided(shape, rows.stride(), rows.storage_offset())
