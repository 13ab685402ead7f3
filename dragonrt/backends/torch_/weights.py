"""Makes the layers of a forward: weights of a source, a model or a GGUF file, in a format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from dragonrt.backends.torch_.adapter import AdaptedLinear, Adapter, Update
from dragonrt.backends.torch_.attention import attention_dtype
from dragonrt.backends.torch_.int4 import GROUP, Groups, Int4Linear, joined_update
from dragonrt.backends.torch_.int8 import QuantizedLinear, can_quantize
from dragonrt.backends.torch_.linear import Linear, Pointwise, has_fast_bfloat16, packs

PIECE = 49152
"""Outputs per product of the output layer: between two of them a preemption is noticed."""
# Outputs per product of a layer that tokens are read from, too: unpacking one takes 0.7 ms of a
# hidden size of 1024, and the products 4 % longer than of the largest pieces.
_TIED_PIECE = 2048
_WORTH_SHARING = 64 * 2**20  # bytes; below that a second copy is no matter
_ROWS_KEPT = 4096
_LARGEST_COPY = 512 * 2**20  # bytes

Weight = Tensor | Groups
Ends = tuple[Pointwise, Sequence[Pointwise]]
"""Both ends of a model: tokens [n] to [n, hidden], and the products that give the logits."""


@dataclass(frozen=True, slots=True)
class Format:
    """How weights are held and multiplied.

    Attributes:
        name: float32, bfloat16, float16, int8, int4, or mixed for a file's own types.
        dtype: what documents' KV is held in, and what an adapter's products read.
        floats: the type of weights that are not rounded.
        layer: makes the products of the layers of W [outputs, inputs] and a bias.
        output: makes those that give the logits.
        groups: whether `layer` accepts groups of 4 bits, too.
        rounds: whether weights become such groups, where their inputs make whole ones.
    """

    name: str
    dtype: torch.dtype
    floats: torch.dtype
    layer: Callable[[Any, Tensor | None], Pointwise]
    output: Callable[[Tensor, Tensor | None], Pointwise]
    groups: bool = False
    rounds: bool = False

    @property
    def merges(self) -> bool:
        """Return whether an adapter becomes part of the weights, which loses nothing of it."""
        return self.layer is Linear


def floats(dtype: torch.dtype) -> Format:
    """Return the format of a float type."""
    return Format(str(dtype).removeprefix("torch."), dtype, dtype, Linear, Linear)


def int8() -> Format:
    """Return the format of 8 bits; needs `can_quantize`."""
    dtype = beside_rounded_weights()
    return Format("int8", dtype, dtype, QuantizedLinear, QuantizedLinear)


def int4(name: str = "int4", *, rounds: bool = True) -> Format:
    """Return the format of 4 bits, and 8 where the logits are computed; needs `can_multiply_int4`.

    Unless it `rounds`, only a file's own groups of 4 bits are multiplied as such.
    """
    output = QuantizedLinear if can_quantize() else Linear

    def layer(weight: Weight, bias: Tensor | None) -> Pointwise:
        if isinstance(weight, Groups):
            return Int4Linear(weight, bias)
        return Linear(weight, bias)

    beside = beside_rounded_weights()
    return Format(name, torch.bfloat16, beside, layer, output, groups=True, rounds=rounds)


def beside_rounded_weights() -> torch.dtype:
    """Return the type in which weights are held that a rounded format does not round."""
    return torch.bfloat16 if has_fast_bfloat16() else torch.float32


class WeightSource:
    """The weights of a transformers model in memory. Others name its modules and parameters."""

    def weight(self, layer: nn.Module) -> Weight:
        """Return the weight [outputs, inputs] of a linear layer."""
        weight: Tensor = layer.weight  # type: ignore[assignment]  # a module's attributes are untyped
        return weight.T if isinstance(layer, Conv1D) else weight

    def tensor(self, parameter: Tensor) -> Tensor:
        """Return any other parameter."""
        return parameter

    def ends(self, embedding: Tensor, output: Tensor, form: Format) -> Ends:
        """Return both ends of weights [vocabulary, hidden], held once if equal and large."""
        tied = embedding.data_ptr() == output.data_ptr() and embedding.shape == output.shape
        large = output.numel() * output.element_size() >= _WORTH_SHARING
        if tied and large and form.output is Linear and packs(output):
            shared = [Linear(piece) for piece in torch.split(output, _TIED_PIECE)]
            return TiedTable(shared), shared
        pieces = [form.output(piece, None) for piece in torch.split(output, PIECE)]
        return lambda tokens: functional.embedding(tokens, embedding), pieces


class TiedTable:
    """An embedding of the rows of a packed output layer, unpacked a piece at a time and kept."""

    def __init__(self, pieces: Sequence[Linear]) -> None:
        self._pieces = pieces
        self._kept: dict[int, Tensor] = {}

    def __call__(self, tokens: Tensor) -> Tensor:
        wanted = tokens.tolist()
        if len(self._kept) > _ROWS_KEPT:
            self._kept.clear()
        missing: dict[int, set[int]] = {}
        for token in wanted:
            if token not in self._kept:
                missing.setdefault(token // _TIED_PIECE, set()).add(token)
        for number, found in missing.items():
            rows = self._pieces[number].weight
            self._kept |= {token: rows[token % _TIED_PIECE].clone() for token in found}
        return torch.stack([self._kept[token] for token in wanted])


class LayerFactory:
    """Makes an architecture's layers of a source's weights, in a format.

    `between` is the type of what is computed between products.
    """

    def __init__(
        self, model: Any, source: WeightSource, form: Format, adapter: Adapter | None
    ) -> None:
        self.form, self.tensor = form, source.tensor
        self.device = torch.device("cpu") if model.device.type == "meta" else model.device
        self.between = attention_dtype(form.dtype, self.device)
        self._model, self._source, self._adapter = model, source, adapter
        self._names = {id(module): name for name, module in model.named_modules()}

    def joined(self, *layers: Any) -> Pointwise:
        """Return several products of the same input as one, or as few as their types allow."""
        weights = [self._weight(layer) for layer in layers]
        biases = [None if layer.bias is None else self.tensor(layer.bias) for layer in layers]
        updates = [None if self.form.merges else self._update(layer) for layer in layers]
        outputs = [weight.shape[0] for weight in weights]
        parts = []
        for are_groups, run in groupby(
            range(len(layers)), lambda n: isinstance(weights[n], Groups)
        ):
            numbers = list(run)
            join: Any = Groups.joined if are_groups else torch.cat
            own = [bias for n in numbers if (bias := biases[n]) is not None]
            many = len(numbers) > 1
            weight = join([weights[n] for n in numbers]) if many else weights[numbers[0]]
            bias = torch.cat(own) if own else None
            whole = len(numbers) == len(layers)
            if isinstance(weight, Groups) and whole and any(updates):
                return Int4Linear(weight, bias, joined_update(updates, outputs))
            parts.append(self.form.layer(weight, bias))
        product = parts[0] if len(parts) == 1 else _side_by_side(parts)
        if not any(updates):
            return product
        return AdaptedLinear(product, Update.joined(updates, outputs), self.form.dtype)

    @property
    def of_prompts(self) -> "LayerFactory | None":
        """Return what makes layers that read prompts, if their products should be others.

        Products of many rows take twice as long with weights of 4 bits as with bfloat16. So small
        models hold the same rounded weights in both.
        """
        layers = [each for each in self._model.modules() if isinstance(each, (nn.Linear, Conv1D))]
        size = sum(each.weight.numel() for each in layers) * self.form.floats.itemsize
        if not self.form.groups or size > _LARGEST_COPY:
            return None
        form = replace(floats(self.form.floats), rounds=self.form.rounds)
        return LayerFactory(self._model, self._source, form, self._adapter)

    def ends(self, embedding: Any, output: Any) -> Ends:
        """Return both ends of the model."""
        return self._source.ends(embedding.weight, output.weight, self.form)

    def _weight(self, layer: nn.Module) -> Weight:
        weight = self._source.weight(layer)
        if self.form.rounds and isinstance(weight, Tensor) and weight.shape[1] % GROUP == 0:
            weight = Groups.rounded(weight.to(self.form.floats))
        if isinstance(weight, Groups):
            if self.form.groups:
                return weight
            weight = weight.dense()
        if self.form.merges and (update := self._update(layer)) is not None:
            weight = weight.float() + update.dense().to(weight.device)
        return weight.to(self.form.floats)

    def _update(self, layer: nn.Module) -> Update | None:
        name = self._names[id(layer)]
        return None if self._adapter is None else self._adapter.updates.get(name)


def _side_by_side(parts: Sequence[Pointwise]) -> Pointwise:
    """Join products of the same input that are held in different types."""
    return lambda x: torch.cat([part(x) for part in parts], dim=-1)
