"""Our own forward pass for the common decoder-only shape: attention and feed-forward on a residual.

Written for few tokens at a time, where time goes into reading the weights and into the number of
operators: queries, keys and values come from one product, so do gate and up; weights are packed
(`Linear`); keys and values are written in place (`KvCache`). Several sequences share a forward:
linear layers run over all their tokens at once, attention over each one's own cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dragonrt.backends.backend import Feed
from dragonrt.backends.torch_.attention import PLAIN, AttentionForm, attention_dtype
from dragonrt.backends.torch_.backend import Geometry, Output
from dragonrt.backends.torch_.kv_cache import BlockLayout, KvCache
from dragonrt.backends.torch_.linear import Pointwise, filled_up, whole_rows


class RootMeanSquareNorm:
    """x · w / √(mean x² + ε) over the last dimension, in float32.

    w is [size], or [heads, size] to norm heads that lie side by side.
    """

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        size = weight.shape[-1]
        # = x · w√d / √(‖x‖² + dε): half the operators, worth it where each one counts
        self._scaled_weight = weight.float() * size**0.5
        self._floor = torch.tensor((size * epsilon) ** 0.5, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return (wide / torch.hypot(norm, self._floor)).mul_(self._scaled_weight).to(x.dtype)


def projection_norm(queries: Pointwise, keys: Pointwise, heads: int) -> Pointwise:
    """Make a norm of all queries, so many heads, and one of all keys (OLMo 2)."""

    def normed(x: Tensor) -> Tensor:
        parts = queries(x[:, :heads].flatten(1)), keys(x[:, heads:].flatten(1))
        return torch.cat(parts, dim=1).view_as(x)

    return normed


def gated_feed_forward(gate_up: Pointwise, activation: Pointwise, down: Pointwise) -> Pointwise:
    """Make down(activation(gate(x)) · up(x)), gate and up in one product."""

    def fed(x: Tensor) -> Tensor:
        gate, up = gate_up(x).chunk(2, dim=-1)
        return down(activation(gate).mul_(up))

    return fed


def sandwiched(before: Pointwise | None, part: Pointwise, after: Pointwise | None) -> Pointwise:
    """Put a part of a block between two norms, either of which may be missing."""

    def normed(x: Tensor) -> Tensor:
        y = part(x if before is None else before(x))
        return y if after is None else after(y)

    return normed


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `attention_in` returns queries, keys and values side by side.

    `head_norm` norms queries and keys [n, heads, head dim]. `rotation` numbers a table of the
    weights; None: no positions. `attention_out` and `feed_forward` are added to the residual.
    """

    attention_norm: Pointwise | None
    attention_in: Pointwise
    attention_out: Pointwise
    feed_forward: Pointwise
    form: AttentionForm = PLAIN
    head_norm: Pointwise | None = None
    rotation: int | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary positions: tables [context length, dims], sines of the first half negated.

    Of each head the first `dims` numbers are turned.
    """

    cosines: Tensor
    sines: Tensor

    def at(self, positions: Tensor, turned: int, kept: int) -> "Rotation":
        """Return the factors of so many heads, and those that keep others: [n, heads, dims]."""
        cosines, sines = (
            functional.embedding(positions[:, None], table).expand(-1, turned, -1)
            for table in (self.cosines, self.sines)
        )
        others = (0, 0, 0, kept)
        return Rotation(functional.pad(cosines, others, value=1.0), functional.pad(sines, others))

    def select(self, places: Tensor) -> "Rotation":
        """Return the factors at some of the places of `at`."""
        return Rotation(self.cosines[places], self.sines[places])

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate x [n, heads, head dim] by the factors of its n positions."""
        dims = self.cosines.shape[-1]
        if dims < x.shape[-1]:
            return torch.cat((self(x[..., :dims]), x[..., dims:]), dim=-1)
        swapped = x.roll(dims // 2, dims=-1)
        return torch.addcmul(x * self.cosines, swapped, self.sines)


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything a forward reads. `output` gives the logits piece by piece."""

    embed: Pointwise
    layers: Sequence[Layer]
    of_prompts: Sequence[Layer]  # the layers that read prompts
    heads: int
    output: Sequence[Pointwise]
    final_norm: Pointwise
    position_embedding: Tensor | None = None  # [context length, hidden]
    rotations: tuple[Rotation, ...] = ()
    embedding_scale: float = 1.0
    soft_cap: float | None = None  # c of logits c · tanh(logit / c)
    filled_up: bool = True  # products want as many rows as `whole_rows` says


@dataclass(slots=True)
class _Part:
    """One sequence's share of a forward: its tokens from `start` on, row by row."""

    number: int
    feed: Feed
    layout: BlockLayout
    start: int = 0

    @property
    def size(self) -> int:
        return self.layout.slots.shape[0]

    @property
    def rows(self) -> int:
        return self.layout.positions.shape[0]


class Transformer:
    """The `Decoder` of the architectures whose forward is written out here."""

    version = "transformer 7"
    rows = KvCache

    def __init__(self, weights: Weights, geometry: Geometry, exact_blocks: bool) -> None:
        self._weights = weights
        self._between = attention_dtype(geometry.dtype, geometry.device)
        self.geometry, self.exact_blocks = geometry, exact_blocks

    def forward(self, feeds: Sequence[Feed]) -> list[Output | None]:
        """See `Backend.forward`. A preempted sequence leaves between two layers."""
        outputs: list[Output | None] = [None] * len(feeds)
        weights = self._weights
        prompts = [feed.prompt and weights.of_prompts is not weights.layers for feed in feeds]
        for layers, prompt in ((weights.layers, False), (weights.of_prompts, True)):
            parts = [
                _Part(number, feed, feed.rows.layout(feed.length, len(feed.tokens)))
                for number, feed in enumerate(feeds)
                if prompts[number] == prompt
            ]
            if parts:
                self._run(layers, parts, outputs)
        return outputs

    def _run(
        self, layers: Sequence[Layer], parts: list[_Part], outputs: list[Output | None]
    ) -> None:
        """Run parts through layers. Store the outputs of those that are not preempted."""
        fills_up = self._weights.filled_up or layers is not self._weights.layers
        whole: Callable[[int], int] = whole_rows if fills_up else int
        hidden = self._embedded(parts, whole)
        rotations = self._weights.rotations
        if rotations:
            positions = _positions(parts, len(hidden))
            kept = self.geometry.layers[0].heads
            turned = self._weights.heads + kept
            rotations = tuple(rotation.at(positions, turned, kept) for rotation in rotations)
        for index, layer in enumerate(layers):
            staying = [part for part in parts if not part.feed.preemption.requested]
            if not staying:
                return
            if len(staying) < len(parts):
                parts, places = staying, self._moved_together(staying, whole)
                hidden = hidden[places]
                rotations = tuple(rotation.select(places) for rotation in rotations)
            rotation = None if layer.rotation is None else rotations[layer.rotation]
            mixed = self._attend(parts, index, layer, hidden, rotation)
            hidden = hidden + layer.attention_out(mixed)
            hidden += layer.feed_forward(hidden)
        wanted = [_wanted(part, hidden) for part in parts]
        computed = self._output_of(torch.cat(wanted) if len(wanted) > 1 else wanted[0], parts)
        start = 0
        for part, rows in zip(parts, wanted, strict=True):
            if computed is not None and not part.feed.preemption.requested:
                place = slice(start, start + len(rows))
                log_p, read = (x[place].view(part.rows, -1, x.shape[1]) for x in computed)
                outputs[part.number] = log_p, read
            start += len(rows)

    def _embedded(self, parts: Sequence[_Part], whole: Callable[[int], int]) -> Tensor:
        """Return the input of the first layer, all rows and tokens of all parts: [n, hidden].

        There are as many as `whole` says: others fill them up, so that no product has to.
        """
        weights = self._weights
        ids: list[int] = []
        for part in parts:
            part.start = len(ids)
            ids += list(part.feed.tokens) * part.rows
        ids += [0] * (whole(len(ids)) - len(ids))
        tokens = torch.tensor(ids, device=self.geometry.device)
        hidden = weights.embed(tokens).to(self._between)
        if weights.embedding_scale != 1.0:
            hidden = hidden * torch.tensor(
                weights.embedding_scale, dtype=hidden.dtype, device=hidden.device
            )
        if weights.position_embedding is not None:
            positions = _positions(parts, len(hidden))
            hidden += functional.embedding(positions, weights.position_embedding)
        return hidden

    def _attend(
        self,
        parts: Sequence[_Part],
        index: int,
        layer: Layer,
        hidden: Tensor,
        rotation: Rotation | None,
    ) -> Tensor:
        heads, shape = self._weights.heads, self.geometry.layers[index]
        normed = hidden if layer.attention_norm is None else layer.attention_norm(hidden)
        projected = layer.attention_in(normed).to(self._between)
        projected = projected.view(len(hidden), -1, shape.key_dim)
        if layer.head_norm is not None:
            turned, values = torch.split(projected, [heads + shape.heads, shape.heads], dim=1)
            projected = torch.cat((layer.head_norm(turned), values), dim=1)
        if rotation is not None:
            projected = rotation(projected)
        queries, keys_values = projected[:, :heads], projected[:, heads:]
        mixed = []
        for part in parts:
            cache, place = part.feed.rows, slice(part.start, part.start + part.size)
            cache.write(index, keys_values[place], part.layout)
            mixed.append(cache.attend(index, queries[place], part.layout, layer.form))
        return filled_up(mixed[0] if len(mixed) == 1 else torch.cat(mixed), len(hidden))

    def _output_of(self, hidden: Tensor, parts: Sequence[_Part]) -> tuple[Tensor, Tensor] | None:
        """Return log-probabilities and the output layer's input; None once nobody wants them."""
        rows = len(hidden)
        if self._weights.filled_up:
            hidden = filled_up(hidden, whole_rows(rows))
        hidden = self._weights.final_norm(hidden)
        pieces = []
        for product in self._weights.output:
            if all(part.feed.preemption.requested for part in parts):
                return None
            pieces.append(product(hidden))
        logits = (pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1))[:rows].float()
        if self._weights.soft_cap is not None:
            logits = logits.div_(self._weights.soft_cap).tanh_().mul_(self._weights.soft_cap)
        return logits.log_softmax(-1), hidden[:rows]

    def _moved_together(self, parts: Sequence[_Part], whole: Callable[[int], int]) -> Tensor:
        """Return where the tokens of these parts were before they moved together."""
        places: list[int] = []
        for part in parts:
            start, part.start = part.start, len(places)
            places += range(start, start + part.size)
        places += [0] * (whole(len(places)) - len(places))
        return torch.tensor(places, device=self.geometry.device)


def _positions(parts: Sequence[_Part], rows: int) -> Tensor:
    """Return the positions of all new tokens, filled up to so many rows."""
    positions = [part.layout.positions.flatten() for part in parts]
    return filled_up(positions[0] if len(positions) == 1 else torch.cat(positions), rows)


def _wanted(part: _Part, hidden: Tensor) -> Tensor:
    """Return the tokens of a part whose output is wanted: [rows * positions, hidden]."""
    own = hidden[part.start : part.start + part.size]
    if part.feed.every:
        return own
    return own.view(part.rows, -1, own.shape[1])[:, -1]
