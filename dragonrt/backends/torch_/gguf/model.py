"""A language model from one GGUF file: its weights behind the modules of a transformers model.

That model has no memory (it is on torch's `meta` device): it has the modules that `architectures`
reads, and each of its parameters stands for a tensor of the file. llama.cpp's converter changed
some weights, which is undone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, get_tensor_name_map
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from dragonrt.backends.torch_.gguf.config import configuration
from dragonrt.backends.torch_.gguf.file import GgufFile, GgufTensor
from dragonrt.backends.torch_.gguf.tokenizer import stop_tokens, tokenizer_of
from dragonrt.backends.torch_.int4 import Groups
from dragonrt.backends.torch_.linear import Linear, Pointwise
from dragonrt.backends.torch_.weights import PIECE, Ends, Format, Weight, WeightSource
from dragonrt.errors import ModelError

_PERMUTED = ("llama", "smollm3")
"""Architectures of whose query and key rows the two halves of a head are interleaved."""
_RAISED_NORMS = ("gemma2", "gemma3")
"""Architectures whose norms are stored with 1 added."""
_FACTORS = "rope_freqs.weight"  # by which Llama 3's frequencies are divided
_MIDDLE = 8  # of the codes of 4 bits


def _q4_0(raw: Tensor) -> Groups:
    """w = d (code - 8): blocks of d and 32 codes, the first 16 in the low halves of bytes."""
    blocks = raw.view(len(raw), -1, 18)
    scales = _halves(blocks[..., :2])
    return Groups(_codes(blocks[..., 2:]), scales, torch.zeros_like(scales))


def _q4_1(raw: Tensor) -> Groups:
    """w = d code + m."""
    blocks = raw.view(len(raw), -1, 20)
    scales, least = _halves(blocks[..., :2]), _halves(blocks[..., 2:4])
    return Groups(_codes(blocks[..., 4:]), scales, least + _MIDDLE * scales)


def _q4_k(raw: Tensor) -> Groups:
    """w = d s code - dmin m: blocks of d, dmin, eight s and m of 6 bits, and 256 codes."""
    blocks = raw.view(len(raw), -1, 144)
    d, least = _halves(blocks[..., :2]), _halves(blocks[..., 2:4])
    low, middle, high = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    s = torch.cat((low & 63, (high & 15) | (low >> 6 << 4)), dim=-1)
    m = torch.cat((middle & 63, (high >> 4) | (middle >> 6 << 4)), dim=-1)
    scales = d[..., None] * s
    zeros = _MIDDLE * scales - least[..., None] * m
    # of each 32 bytes the low halves are one group, and the high halves the next
    codes = _codes(blocks[..., 16:].reshape(len(raw), -1, 32))
    return Groups(codes, scales.flatten(1), zeros.flatten(1))


DECODERS: Mapping[GGMLQuantizationType, Callable[[Tensor], Groups]] = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q4_K: _q4_k,
}
"""From a tensor's rows as bytes, uint8 [rows, row bytes], codes unchanged (SPEC section 5)."""


def _halves(pairs: Tensor) -> Tensor:
    """Return pairs of bytes [..., 2] as float32."""
    return pairs.contiguous().view(torch.float16)[..., 0].float()


def _codes(halves: Tensor) -> Tensor:
    """Return bytes [rows, blocks, n] as codes [rows, blocks * 2 n], low halves first."""
    return torch.cat((halves & 15, halves >> 4), dim=-1).flatten(1)


@dataclass(frozen=True, slots=True)
class _Place:
    """A parameter's tensor: its row n is stored as `order[n]`, each number with `added` more."""

    tensor: GgufTensor
    order: Tensor | None
    added: float

    def ordered(self, rows: Tensor) -> Tensor:
        """Return the parameter's rows of the stored ones."""
        return rows if self.order is None else rows[self.order]


class GgufModel(WeightSource):
    """An open file as a `WeightSource`, with the model whose modules it gives weights to."""

    def __init__(self, file: GgufFile) -> None:
        """Raises ModelError if the file is damaged, or no model that is known."""
        self.file, path = file, file.path
        config = configuration(file)
        build: Any = AutoModelForCausalLM
        try:
            with torch.device("meta"):
                self.model: Any = build.from_config(config, dtype=torch.float32)
        except (ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError) as error:
            raise ModelError(f"{path} describes no model that can be built: {error}") from error
        self.model.eval().requires_grad_(False)
        self._places = _matched(file, self.model)
        _compute_rotations(file, self.model)
        self.tokenizer = tokenizer_of(file.metadata)
        self.model.generation_config.eos_token_id = list(stop_tokens(file.metadata)) or None
        file.metadata = {}  # its vocabulary takes many megabytes
        self.fingerprint = file.fingerprint()

    @property
    def groups(self) -> float:
        """Return the share of linear layers whose weights are groups of 4 bits."""
        tensors = self.file.tensors.values()
        layers = [each for each in tensors if "blk." in each.name and len(each.shape) > 1]
        return sum(each.kind in DECODERS for each in layers) / len(layers)

    def weight(self, layer: nn.Module) -> Weight:
        """See `WeightSource.weight`: groups where the file has 4 bits, else float32."""
        place = self._places[id(layer.weight)]
        decode = DECODERS.get(place.tensor.kind)
        if decode is None:
            return self._numbers(place)
        return decode(place.ordered(torch.from_numpy(self.file.raw(place.tensor))))

    def tensor(self, parameter: Tensor) -> Tensor:
        """See `WeightSource.tensor`, in float32."""
        place = self._places[id(parameter)]
        return self._numbers(place).view(place.tensor.shape) - place.added

    def ends(self, embedding: Tensor, output: Tensor, form: Format) -> Ends:
        """See `WeightSource.ends`. The embedding takes no memory: its rows are read when wanted."""
        table = self._places[id(embedding)].tensor

        def embed(tokens: Tensor) -> Tensor:
            return torch.from_numpy(self.file.rows(table, tokens.tolist())).to(form.dtype)

        def product(rows: Tensor) -> Pointwise:
            return form.output(rows.to(form.floats) if form.output is Linear else rows, None)

        return embed, self.outputs(self._places[id(output)].tensor, product)

    def outputs(self, table: GgufTensor, product: Callable[[Tensor], Pointwise]) -> list[Pointwise]:
        """Return what gives the logits, piece by piece, of products with rows of a table."""
        parts = (self.file.dense(table, n, n + PIECE) for n in range(0, table.rows, PIECE))
        return [product(torch.from_numpy(part)) for part in parts]

    def _numbers(self, place: _Place) -> Tensor:
        return place.ordered(torch.from_numpy(self.file.dense(place.tensor)))


def _matched(file: GgufFile, model: Any) -> dict[int, _Place]:
    """Return the place of every parameter by its id. Raises ModelError if the two do not fit."""
    architecture, config = file.metadata["general.architecture"], model.config
    number = next(each for each, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(number, config.num_hidden_layers)
    heads = {
        "q_proj": config.num_attention_heads,
        "k_proj": getattr(config, "num_key_value_heads", 0),
    }
    places, left = {}, set(file.tensors)
    for name, parameter in model.named_parameters():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if stored not in file.tensors:
            raise ModelError(f"{file.path} lacks the tensor {stored}")
        tensor, path = file.tensors[stored], name.rpartition(".")[0]
        is_transposed = isinstance(model.get_submodule(path), Conv1D)
        shape = tuple(parameter.shape[::-1] if is_transposed else parameter.shape)
        if tensor.shape != shape:
            raise ModelError(f"{file.path} has {stored} of shape {tensor.shape}, not {shape}")
        order, part = None, path.rpartition(".")[2]
        if architecture in _PERMUTED and part in heads:
            order = torch.arange(shape[0]).view(heads[part], -1, 2).transpose(1, 2).flatten()
        raised = architecture in _RAISED_NORMS and "norm" in name
        places[id(parameter)] = _Place(tensor, order, 1.0 if raised else 0.0)
        left.discard(stored)
    if unknown := left - {_FACTORS, "output.weight"}:
        raise ModelError(f"{file.path} has tensors of no known meaning, such as {min(unknown)}")
    return places


def _compute_rotations(file: GgufFile, model: Any) -> None:
    """Give the model its rotary frequencies, which are no parameters of it."""
    body = getattr(model, "model", None)
    if body is None:
        return
    body.rotary_emb = type(body.rotary_emb)(config=model.config)
    if (factors := file.tensors.get(_FACTORS)) is not None:
        frequencies = body.rotary_emb.inv_freq
        if factors.shape != tuple(frequencies.shape):
            raise ModelError(f"{file.path} has {_FACTORS} of shape {factors.shape}")
        frequencies.div_(torch.from_numpy(file.dense(factors)).view_as(frequencies))
