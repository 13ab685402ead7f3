"""Makes the layers of a forward: weights of a source, in a format.

An architecture asks a `LayerFactory` for tensors and joined products. A source is a transformers
model in memory or a GGUF file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from dragonrt.backends.torch_.adapter import AdaptedLinear, Adapter, Update
from dragonrt.backends.torch_.int4 import Groups, Int4Linear, can_be_rounded
from dragonrt.backends.torch_.int8 import QuantizedLinear, can_quantize
from dragonrt.backends.torch_.linear import Linear, MakeLinear, Pointwise, has_fast_bfloat16
from dragonrt.backends.torch_.vocabulary import Embed, OutputLayer, vocabulary_layers

Weight = Tensor | Groups


class WeightSource:
    """The weights of a transformers model in memory. Others name its modules and parameters.

    Attributes:
        device: where the weights are put; None: where the model is.
    """

    device: torch.device | None = None

    def weight(self, layer: nn.Module) -> Weight:
        """Return the weight [outputs, inputs] of a linear layer."""
        weight: Tensor = layer.weight  # type: ignore[assignment]  # a module's attributes are untyped
        return weight.T if isinstance(layer, Conv1D) else weight

    def tensor(self, parameter: Tensor) -> Tensor:
        """Return any other parameter."""
        return parameter

    def vocabulary(
        self, embedding: nn.Module, output: nn.Module, form: "Format"
    ) -> tuple[Embed, OutputLayer]:
        """Return the embedding, and the products that give the logits."""
        table: Any = embedding.weight
        return vocabulary_layers(table, output.weight, form.output)  # type: ignore[arg-type]  # untyped


@dataclass(frozen=True, slots=True)
class Format:
    """How weights are held and multiplied.

    Attributes:
        name: float32, bfloat16, float16, int8, int4, or mixed for a file's own types.
        dtype: what is computed between the products.
        layer: makes the products of the layers.
        output: makes the products that give the logits.
        groups: whether `layer` takes groups of 4 bits, too.
    """

    name: str
    dtype: torch.dtype
    layer: Callable[[Any, Tensor | None], Pointwise]
    output: MakeLinear
    groups: bool = False

    @property
    def merges(self) -> bool:
        """Whether an adapter becomes part of the weights, which loses nothing of it."""
        return self.layer is Linear


def floats(dtype: torch.dtype) -> Format:
    """The format of a float type."""
    return Format(str(dtype).removeprefix("torch."), dtype, Linear, Linear)


def int8() -> Format:
    """Weights of 8 bits; needs `can_quantize`."""
    return Format("int8", between_rounded_weights(), QuantizedLinear, QuantizedLinear)


def int4() -> Format:
    """Weights of 4 bits, and 8 where the logits are computed; needs `can_multiply_int4`."""
    return Format("int4", between_rounded_weights(), _rounded, _output(), groups=True)


def own_types(name: str) -> Format:
    """Groups of 4 bits as they are, and other weights in a float type; needs the same."""
    return Format(name, between_rounded_weights(), _kept, _output(), groups=True)


def between_rounded_weights() -> torch.dtype:
    """What is computed between products of rounded weights."""
    return torch.bfloat16 if has_fast_bfloat16() else torch.float32


def _rounded(weight: Weight, bias: Tensor | None) -> Pointwise:
    return _kept(Groups.rounded(weight) if can_be_rounded(weight) else weight, bias)


def _kept(weight: Weight, bias: Tensor | None) -> Pointwise:
    if isinstance(weight, Groups):
        return Int4Linear(weight, bias, between_rounded_weights())
    return Linear(weight, bias)


def _output() -> MakeLinear:
    return QuantizedLinear if can_quantize() else Linear


class LayerFactory:
    """Makes an architecture's layers of a source's weights, in a format."""

    def __init__(
        self,
        model: Any,
        source: WeightSource | None = None,
        form: Format | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        """By default of a model's own weights, as they are."""
        self.form = floats(model.dtype) if form is None else form
        self.device = model.device if source is None else source.device or model.device
        self._source = WeightSource() if source is None else source
        self._names = {id(module): name for name, module in model.named_modules()}
        self._adapter = adapter

    def tensor(self, parameter: Tensor) -> Tensor:
        """A parameter that is no linear layer's weight."""
        return self._source.tensor(parameter)

    def joined(self, *layers: Any) -> Pointwise:
        """Several products of the same input as one, or as few as their types allow."""
        weights = [self._weight(layer) for layer in layers]
        biases = [None if layer.bias is None else self.tensor(layer.bias) for layer in layers]
        parts = []
        for is_groups, run in groupby(range(len(layers)), lambda n: isinstance(weights[n], Groups)):
            numbers = list(run)
            join: Any = Groups.joined if is_groups else torch.cat
            own = [bias for n in numbers if (bias := biases[n]) is not None]
            weight = (
                join([weights[n] for n in numbers]) if len(numbers) > 1 else weights[numbers[0]]
            )
            parts.append(self.form.layer(weight, torch.cat(own) if own else None))
        product = parts[0] if len(parts) == 1 else _side_by_side(parts)
        updates = [] if self.form.merges else [self._update(layer) for layer in layers]
        if not any(updates):
            return product
        outputs = [weight.shape[0] for weight in weights]
        return AdaptedLinear(product, updates, outputs, self.form.dtype)

    def vocabulary(self, embedding: nn.Module, output: nn.Module) -> tuple[Embed, OutputLayer]:
        """Both ends of the model."""
        return self._source.vocabulary(embedding, output, self.form)

    def _weight(self, layer: nn.Module) -> Weight:
        weight = self._source.weight(layer)
        if isinstance(weight, Groups):
            if self.form.groups:
                return weight
            weight = weight.dense()
        if self.form.merges and (update := self._update(layer)) is not None:
            weight = weight.float() + update.dense().to(weight.device)
        return weight.to(self.form.dtype)

    def _update(self, layer: nn.Module) -> Update | None:
        return None if self._adapter is None else self._adapter.of(self._names[id(layer)])


def _side_by_side(parts: Sequence[Pointwise]) -> Pointwise:
    """Join products of the same input that are held in different types."""
    return lambda x: torch.cat([part(x) for part in parts], dim=-1)
