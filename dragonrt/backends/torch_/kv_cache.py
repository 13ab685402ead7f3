"""The keys and values of several rows, one behind a document each.

A row's token at position i lies in column i, so rows of different lengths need no padding before
their tokens, only masking behind them.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from dragonrt.backends.torch_.attention import (
    LARGEST_TILE,
    AttentionForm,
    Masks,
    attend,
    attends_by_position,
    column_tile,
    own_tile,
)
from dragonrt.backends.torch_.backend import Geometry
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.backends.torch_.pages import PAGE, Pages, paged


@dataclass(frozen=True, slots=True)
class Tile:
    """Neighbouring rows and tokens whose queries read the same columns."""

    rows: slice
    tokens: slice
    masks: Masks


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Where T new tokens of R rows go. Flattened sizes are row-major: [R * T]."""

    positions: Tensor  # [R, T] position of each new token in its row
    slots: Tensor  # [R * T] its place in a layer's buffer
    tiles: tuple[Tile, ...]


class KvCache:
    """Keys and values of every layer, each written in place, in memory reserved for all of them.

    Layers and rows lie one behind another. What is read of a row in whole tiles of columns may
    reach into the next one: that is masked. Documents in shared pages are only shown.
    """

    def __init__(self, geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> None:
        """The geometry's layers are all of one shape."""
        self._geometry = geometry
        self._documents = [document.length for document in documents]
        self._shared = [None if each.pages is None else each for each in documents]
        self._lengths = torch.tensor(self._documents, device=geometry.device)[:, None]
        self._blocked = torch.tensor(-torch.inf, dtype=geometry.dtype, device=geometry.device)
        self._allocate(capacity)
        for row, document in enumerate(documents):
            if document.pages is not None:
                self._show(row, document)
                continue
            for buffer, stored in zip(self._keys, document.keys, strict=True):
                buffer[row, :, : document.length] = stored
            for buffer, stored in zip(self._values, document.values, strict=True):
                buffer[row, :, : document.length] = stored

    @staticmethod
    def memory(geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> int:
        longest = max(document.length for document in documents)
        on_pages = geometry.device.type == "cpu"  # of which the last ones may never be written
        return len(geometry.layers) * sum(
            paged(((document.length if on_pages else longest) + capacity) * column)
            - (document.length * column // PAGE * PAGE if document.pages is not None else 0)
            for document in documents
            for column in _column_bytes(geometry)
        )

    @torch.inference_mode()
    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` shared tokens, at least doubling the buffers if they grow."""
        if tokens <= self._capacity:
            return
        old = self._keys + self._values
        self._allocate(max(tokens, 2 * self._capacity))
        for new, stored in zip(self._keys + self._values, old, strict=True):
            new[:, :, : stored.shape[2]] = stored

    def document(self, row: int, length: int) -> DocumentKV:
        """A copy of a row's first `length` columns."""

        def copies(buffers: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(buffer[row, :, :length].contiguous().cpu() for buffer in buffers)

        return DocumentKV(copies(self._keys), copies(self._values))

    @torch.inference_mode()
    def fork(self, length: int) -> Self:
        other = copy(self)
        other._allocate(self._capacity)
        buffers = list(zip(other._keys + other._values, self._keys + self._values, strict=True))
        for row, document in enumerate(self._shared):
            if document is not None:
                other._show(row, document)
            start = 0 if document is None else document.length
            stop = self._documents[row] + length
            for new, stored in buffers:
                new[row, :, start:stop] = stored[row, :, start:stop]
        return other

    def layout(self, length: int, tokens: int, *, prompt: bool) -> BlockLayout:
        """The places of `tokens` new tokens, of a prompt or not, behind `length` shared ones."""
        positions = self._lengths + self._columns[length : length + tokens]
        slots = (positions + self._starts).flatten()
        return BlockLayout(positions, slots, self._tiles(positions, length, tokens, prompt))

    def _tiles(self, positions: Tensor, length: int, tokens: int, prompt: bool) -> tuple[Tile, ...]:
        dtype, device = self._geometry.dtype, self._geometry.device
        by_position = attends_by_position(dtype, device, prompt=prompt)
        own = own_tile(dtype, device)
        if own is None:
            tile = column_tile(by_position=by_position)
            needed = max(self._documents) + length + tokens
            parts = [(0, len(self._documents), 0, tokens, -(-needed // tile) * tile)]
        else:
            firsts = [document + length for document in self._documents]
            parts = _by_own_columns(firsts, tokens, own)
        tiles = []
        for first, last, start, stop, columns in parts:
            rows, part = slice(first, last), slice(start, stop)
            seen = self._columns[:columns]
            masks = Masks(positions[rows, part], seen, self._blocked, by_position=by_position)
            tiles.append(Tile(rows, part, masks))
        return tuple(tiles)

    def write(self, layer: int, keys: Tensor, values: Tensor, layout: BlockLayout) -> None:
        """Store a layer's keys and values [R * T, kv heads, head dim] of new tokens."""
        self._key_slots[layer].index_copy_(0, layout.slots, keys)
        self._value_slots[layer].index_copy_(0, layout.slots, values)

    def attend(
        self, layer: int, queries: Tensor, layout: BlockLayout, form: AttentionForm
    ) -> Tensor:
        """Attention of queries [R * T, heads, head dim] over a layer's columns: [R * T, hidden]."""
        rows, tokens = layout.positions.shape
        shape = self._geometry.layers[0]
        grouped = queries.reshape(rows, tokens, shape.heads, -1, shape.key_dim)
        mixed = []
        for tile in layout.tiles:
            keys, values = (
                _widened(buffer[layer][tile.rows], tile.masks.columns)
                for buffer in (self._keys, self._values)
            )
            part = grouped[tile.rows, tile.tokens]
            mixed.append(attend(part, keys, values, tile.masks, form))
        if len(mixed) == 1:
            return mixed[0]
        whole = mixed[0].new_empty(rows, tokens, mixed[0].shape[1])
        for tile, part in zip(layout.tiles, mixed, strict=True):
            place = whole[tile.rows, tile.tokens]
            place.copy_(part.view_as(place))
        return whole.view(rows * tokens, -1)

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        device, rows = self._geometry.device, len(self._documents)
        total = max(self._documents) + capacity
        if device.type == "cpu":  # every row begins a page
            parts = (PAGE // math.gcd(PAGE, column) for column in _column_bytes(self._geometry))
            total = -(-total // (whole := math.lcm(*parts))) * whole
        self._starts = torch.arange(rows, device=device)[:, None] * total
        self._columns = torch.arange(total + LARGEST_TILE, device=device)
        shape = self._geometry.layers[0]
        self._key_pages, self._key_slots, self._keys = self._buffers(total, shape.key_dim)
        self._value_pages, self._value_slots, self._values = self._buffers(total, shape.value_dim)

    def _buffers(
        self, total: int, size: int
    ) -> tuple[Pages, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Memory, and each layer's as [rows * total, heads, size] and [rows, heads, total, size].

        A tile behind it all is for what the last row reads beyond its end. Zeros, for masked
        columns are multiplied by zero and must be finite.
        """
        geometry, rows = self._geometry, len(self._documents)
        layers, heads = len(geometry.layers), geometry.layers[0].heads
        number = layers * rows * total
        width = heads * size * geometry.dtype.itemsize
        pages = Pages((number + LARGEST_TILE) * width, geometry.device)
        memory = pages.bytes.view(geometry.dtype).view(-1, heads, size)
        slots = memory[:number].view(layers, rows * total, heads, size)
        by_row = slots.view(layers, rows, total, heads, size).transpose(2, 3)
        return pages, slots.unbind(), by_row.unbind()

    def _show(self, row: int, document: DocumentKV) -> None:
        """Have a row begin with a document that lies in shared pages."""
        shared, layers = document.pages, len(self._geometry.layers)
        if shared is None:
            return
        ways = zip((self._key_pages, self._value_pages), _column_bytes(self._geometry), strict=True)
        for number, (pages, column) in enumerate(ways):
            total = self._keys[0].shape[2] * column
            for layer in range(layers):
                start = document.starts[number * layers + layer]
                at = (layer * len(self._documents) + row) * total
                pages.show(shared, start, document.length * column, at)


def _by_own_columns(
    firsts: Sequence[int], tokens: int, tile: int
) -> list[tuple[int, int, int, int, int]]:
    """Parts (first row, last, first token, last, columns) of rows that begin at these positions.

    A token at position p reads the whole tiles up to p. Rows next to each other are taken together
    where all their tokens read the same.
    """
    parts: list[tuple[int, int, int, int, int]] = []
    row = 0
    while row < len(firsts):
        cuts = _cuts(firsts[row], tokens, tile)
        last = row + 1
        while last < len(firsts) and _cuts(firsts[last], tokens, tile) == cuts:
            last += 1
        parts += [(row, last, *cut) for cut in cuts]
        row = last
    return parts


def _cuts(first: int, tokens: int, tile: int) -> list[tuple[int, int, int]]:
    """(first token, last, columns) of tokens from this position on, which may all differ."""
    ends = range(first // tile * tile + tile, first + tokens + tile, tile)
    return [(max(0, end - tile - first), min(tokens, end - first), end) for end in ends]


def _column_bytes(geometry: Geometry) -> tuple[int, int]:
    """What a token's keys, and its values, take in one layer."""
    shape = geometry.layers[0]
    each = shape.heads * geometry.dtype.itemsize
    return each * shape.key_dim, each * shape.value_dim


def _widened(layer: Tensor, columns: int) -> Tensor:
    """A layer [rows, heads, total, size], read as if it had this many columns."""
    rows, heads, _, size = layer.shape
    return layer.as_strided((rows, heads, columns, size), layer.stride(), layer.storage_offset())
