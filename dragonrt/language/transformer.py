"""Our own forward pass for the common decoder-only shape: norm, attention, norm, feed-forward.

Written for few tokens at a time, where time goes into reading the weights and into the number of
operators: queries, keys and values come from one product, so do gate and up; weights are packed
(`Linear`); keys and values are written in place (`KvCache`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dragonrt.language.decoder import Geometry, Output
from dragonrt.language.document import DocumentKV
from dragonrt.language.kv_cache import BlockLayout, KvCache
from dragonrt.language.linear import Linear
from dragonrt.language.preemption import Preemption

# Outputs per product of the output layer: between two of them a preemption is noticed.
_VOCABULARY_PIECE = 16384

Pointwise = Callable[[Tensor], Tensor]


class RootMeanSquareNorm:
    """x · w / √(mean x² + ε) over the last dimension."""

    __slots__ = ("_epsilon", "_floor", "_scaled_weight", "_size", "_weight")

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self._size = weight.shape[0]
        self._weight, self._epsilon = weight, epsilon
        # = x · w√d / √(‖x‖² + dε): half the operators, worth it where each one counts
        self._scaled_weight = weight * self._size**0.5
        self._floor = torch.tensor((self._size * epsilon) ** 0.5, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            return functional.rms_norm(x, (self._size,), self._weight, self._epsilon)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x / torch.hypot(norm, self._floor)).mul_(self._scaled_weight)


class LayerNorm:
    """Layer normalization over the last dimension."""

    __slots__ = ("_bias", "_epsilon", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor, epsilon: float) -> None:
        self._weight, self._bias, self._epsilon = weight, bias, epsilon

    def __call__(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self._weight, self._bias, self._epsilon)


class GatedFeedForward:
    """down(silu(gate(x)) · up(x)), gate and up in one product (Llama, Qwen2)."""

    __slots__ = ("_down", "_gate_up")

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self._gate_up, self._down = gate_up, down

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(functional.silu(gate).mul_(up))


class FeedForward:
    """down(activation(up(x))) (OPT, GPT-2)."""

    __slots__ = ("_activation", "_down", "_up")

    def __init__(self, up: Linear, activation: Pointwise, down: Linear) -> None:
        self._up, self._activation, self._down = up, activation, down

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(self._activation(self._up(x)))


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `attention_in` yields queries, keys and values side by side."""

    attention_norm: Pointwise
    attention_in: Linear
    attention_out: Linear
    feed_forward_norm: Pointwise
    feed_forward: Pointwise


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary positions: tables [context length, head dim], sines of the first half negated."""

    cosines: Tensor
    sines: Tensor

    def at(self, positions: Tensor) -> "Rotation":
        """The factors of these positions: [n, 1, head dim]."""
        cosines = functional.embedding(positions[:, None], self.cosines)
        return Rotation(cosines, functional.embedding(positions[:, None], self.sines))

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate x [n, heads, head dim] by the factors of its n positions."""
        swapped = x.roll(x.shape[-1] // 2, dims=-1)
        return torch.addcmul(x * self.cosines, swapped, self.sines)


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything a forward reads. Exactly one of `rotation` and `position_embedding` is there."""

    embedding: Tensor  # [vocabulary, hidden]
    position_embedding: Tensor | None  # [context length, hidden]
    rotation: Rotation | None
    layers: tuple[Layer, ...]
    final_norm: Pointwise
    heads: int
    output: Tensor  # [vocabulary, hidden]


class Transformer:
    """The `Decoder` of the architectures whose forward is written out here."""

    def __init__(self, weights: Weights, geometry: Geometry) -> None:
        self._weights = weights
        self._geometry = geometry
        self._output = [Linear(piece) for piece in torch.split(weights.output, _VOCABULARY_PIECE)]

    @property
    def geometry(self) -> Geometry:
        """The sizes of the model."""
        return self._geometry

    def open(self, documents: Sequence[DocumentKV], capacity: int) -> KvCache:
        """A cache of one row per document, with room for `capacity` shared tokens."""
        return KvCache(self._geometry, documents, capacity)

    def forward(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        length: int,
        every: bool,
        preemption: Preemption,
    ) -> Output:
        """See `Decoder.forward`."""
        weights = self._weights
        count = len(tokens)
        block = cache.block(length, count)
        rows = block.mask.shape[0]
        ids = torch.tensor(list(tokens) * rows, device=self._geometry.device)
        hidden = functional.embedding(ids, weights.embedding)  # [R * T, hidden]
        if weights.position_embedding is not None:
            hidden += functional.embedding(block.positions, weights.position_embedding)
        rotation = None if weights.rotation is None else weights.rotation.at(block.positions)
        for index, layer in enumerate(weights.layers):
            preemption.check()
            mixed = self._attend(cache, index, layer, hidden, block, rotation)
            hidden = hidden + layer.attention_out(mixed)
            hidden += layer.feed_forward(layer.feed_forward_norm(hidden))
        hidden = hidden.view(rows, count, -1)
        return self._output_of(hidden if every else hidden[:, -1:], preemption)

    def _attend(
        self,
        cache: KvCache,
        index: int,
        layer: Layer,
        hidden: Tensor,
        block: BlockLayout,
        rotation: Rotation | None,
    ) -> Tensor:
        heads, shape = self._weights.heads, self._geometry.layers[index]
        projected = layer.attention_in(layer.attention_norm(hidden))
        projected = projected.view(len(hidden), -1, shape.key_dim)
        turned, values = torch.split(projected, [heads + shape.heads, shape.heads], dim=1)
        if rotation is not None:
            turned = rotation(turned)
        cache.write(index, turned[:, heads:], values, block)
        return cache.attend(index, turned[:, :heads], block)

    def _output_of(self, hidden: Tensor, preemption: Preemption) -> Output:
        rows, positions, _ = hidden.shape
        hidden = self._weights.final_norm(hidden.reshape(rows * positions, -1))
        pieces = []
        for output in self._output:
            preemption.check()
            pieces.append(output(hidden))
        logits = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)
        return Output(
            logits.float().log_softmax(-1).view(rows, positions, -1),
            hidden.view(rows, positions, -1),
        )
