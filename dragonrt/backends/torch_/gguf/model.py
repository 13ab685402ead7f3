"""A language model from one GGUF file: its weights behind the modules of a transformers model.

That model has no memory (it is on torch's `meta` device): it has the modules that `architectures`
reads, and each of its parameters stands for a tensor of the file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from dragonrt.backends.torch_.gguf.config import PERMUTED, RAISED_NORMS, configuration, stored_as
from dragonrt.backends.torch_.gguf.file import GgufFile, GgufTensor
from dragonrt.backends.torch_.gguf.groups import DECODERS
from dragonrt.backends.torch_.gguf.tokenizer import stop_tokens, tokenizer_of
from dragonrt.backends.torch_.linear import Linear
from dragonrt.backends.torch_.vocabulary import PIECE, Embed, OutputLayer
from dragonrt.backends.torch_.weights import Format, Weight, WeightSource
from dragonrt.errors import ModelError

_AT_ONCE = 2**21  # numbers that are dequantised together
_FACTORS = "rope_freqs.weight"  # by which Llama 3's frequencies are divided


class GgufModel(WeightSource):
    """An open file as a `WeightSource`, with the model whose modules it gives weights to.

    Attributes:
        model: a transformers model on the `meta` device.
        tokenizer: a transformers tokenizer.
        parameters: how many numbers the file's tensors have.
    """

    device = torch.device("cpu")

    def __init__(self, path: Path) -> None:
        """Raises ModelError if the file is damaged, or no model that is known."""
        self._file = GgufFile(path)
        config = configuration(self._file)
        build: Any = AutoModelForCausalLM
        try:
            with torch.device("meta"):
                self.model: Any = build.from_config(config, dtype=torch.float32)
        except (ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError) as error:
            raise ModelError(f"{path} describes no model that can be built: {error}") from error
        self.model.eval().requires_grad_(False)
        self._places = _matched(self._file, self.model)
        _compute_rotations(self._file, self.model)
        self.tokenizer = tokenizer_of(self._file.metadata)
        stops = list(stop_tokens(self._file.metadata))
        self.model.generation_config.eos_token_id = stops or None
        self._file.forget()
        self.parameters = sum(each.rows * each.shape[-1] for each in self._file.tensors.values())

    @property
    def groups(self) -> float:
        """The share of linear layers whose weights are groups of 4 bits."""
        layers = [
            self._places[id(layer.weight)].tensor.kind in DECODERS
            for name, layer in self.model.named_modules()
            if isinstance(layer, (nn.Linear, Conv1D)) and name != "lm_head"
        ]
        return sum(layers) / len(layers)

    def fingerprint(self) -> str:
        """A name for the file's content."""
        return self._file.fingerprint()

    def weight(self, layer: nn.Module) -> Weight:
        """See `WeightSource.weight`: groups where the file has 4 bits, else float32."""
        place = self._places[id(layer.weight)]
        decode = DECODERS.get(place.tensor.kind)
        if decode is None:
            return self._numbers(place)
        raw = torch.from_numpy(self._file.raw(place.tensor))
        return decode(raw if place.order is None else raw[place.order])

    def tensor(self, parameter: Tensor) -> Tensor:
        """See `WeightSource.tensor`, in float32."""
        place = self._places[id(parameter)]
        return self._numbers(place).view(place.tensor.shape) - place.added

    def vocabulary(
        self, embedding: nn.Module, output: nn.Module, form: Format
    ) -> tuple[Embed, OutputLayer]:
        """See `WeightSource.vocabulary`. Rows of the embedding are read when they are wanted."""
        place = self._places[id(output.weight)]
        size, hidden = place.tensor.shape
        pieces = []
        for start in range(0, size, PIECE):
            rows = self._numbers(place, start, min(start + PIECE, size))
            pieces.append(form.output(rows.to(form.dtype) if form.output is Linear else rows, None))
        table = _FileTable(self._file, self._places[id(embedding.weight)].tensor, form.dtype)
        return table, OutputLayer(pieces, size, hidden, form.dtype, torch.device("cpu"))

    def _numbers(self, place: "_Place", start: int = 0, stop: int | None = None) -> Tensor:
        """Rows of a tensor in float32, dequantised a few at a time."""
        tensor, stop = place.tensor, place.tensor.rows if stop is None else stop
        found = torch.empty(stop - start, tensor.shape[-1])
        step = max(1, _AT_ONCE // tensor.shape[-1])
        for first in range(start, stop, step):
            last = min(first + step, stop)
            found[first - start : last - start] = torch.from_numpy(
                self._file.dense(tensor, first, last)
            )
        return found if place.order is None else found[place.order]


class _FileTable:
    """An embedding whose rows are read from the file: they take no memory."""

    def __init__(self, file: GgufFile, tensor: GgufTensor, dtype: torch.dtype) -> None:
        self._file, self._tensor, self._dtype = file, tensor, dtype

    def __call__(self, tokens: Tensor) -> Tensor:
        return torch.from_numpy(self._file.rows(self._tensor, tokens.tolist())).to(self._dtype)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a parameter is in the file, and what llama.cpp's converter did to it.

    Its row n is the stored row `order[n]`; `added` was added to every number.
    """

    tensor: GgufTensor
    order: Tensor | None = None
    added: float = 0.0


def _matched(file: GgufFile, model: Any) -> dict[int, _Place]:
    """The place of every parameter, by its id. Raises ModelError if the two do not fit."""
    architecture, left = file.metadata["general.architecture"], set(file.tensors)
    places = {}
    for name, parameter in model.named_parameters():
        stored = stored_as(architecture, name)
        tensor = file.tensors.get(stored)
        if tensor is None:
            raise ModelError(f"{file.path} lacks the tensor {stored}")
        module = model.get_submodule(name.rpartition(".")[0])
        shape = tuple(parameter.shape[::-1] if isinstance(module, Conv1D) else parameter.shape)
        if tensor.shape != shape:
            raise ModelError(f"{file.path} has {stored} of shape {tensor.shape}, not {shape}")
        heads = _interleaved_heads(architecture, model.config, name)
        order = None
        if heads:
            order = torch.arange(shape[0]).view(heads, -1, 2).transpose(1, 2).flatten()
        raised = architecture in RAISED_NORMS and "norm" in name
        places[id(parameter)] = _Place(tensor, order, 1.0 if raised else 0.0)
        left.discard(stored)
    if unknown := left - {_FACTORS, "output.weight"}:
        raise ModelError(f"{file.path} has tensors of no known meaning, such as {min(unknown)}")
    return places


def _interleaved_heads(architecture: str, config: Any, name: str) -> int:
    """Of how many heads a parameter's rows are stored in another order."""
    if architecture not in PERMUTED:
        return 0
    kinds = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    return next((heads for kind, heads in kinds.items() if f".{kind}." in name), 0)


def _compute_rotations(file: GgufFile, model: Any) -> None:
    """Give the model its rotary frequencies, which are no parameters of it."""
    body = getattr(model, "model", None)
    if body is None:
        return
    body.rotary_emb = type(body.rotary_emb)(config=model.config)
    factors = file.tensors.get(_FACTORS)
    if factors is not None:
        frequencies = body.rotary_emb.inv_freq
        if factors.shape != tuple(frequencies.shape):
            raise ModelError(f"{file.path} has {_FACTORS} of shape {factors.shape}")
        frequencies.div_(torch.from_numpy(file.dense(factors)).view_as(frequencies))
