"""The bundled embedding model on torch alone: a BERT encoder with mean pooling.

It gives the numbers of `sentence_transformers` to 1e-6, without seconds of start-up.

Source: Devlin et al. 2019 (BERT) and Reimers and Gurevych 2019 (mean pooling).
"""

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]


class BertEncoder:
    """A BERT encoder with mean pooling, loaded from a sentence-transformers directory."""

    def __init__(self, directory: Path) -> None:
        config = _json(directory / "config.json")
        weights = load_file(directory / "model.safetensors")
        self._heads = int(config["num_attention_heads"])
        self._epsilon = float(config["layer_norm_eps"])
        self._words = weights["embeddings.word_embeddings.weight"]
        # All texts are of one segment: its embedding is added to the positions once.
        self._positions = (
            weights["embeddings.position_embeddings.weight"]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = _norm(weights, "embeddings")
        self._layers = [
            _Layer(weights, f"encoder.layer.{i}") for i in range(int(config["num_hidden_layers"]))
        ]
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.no_padding()
        limit = _json(directory / "sentence_bert_config.json").get("max_seq_length")
        self._tokenizer.enable_truncation(int(limit or config["max_position_embeddings"]))

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return mean-pooled embeddings, float32 [texts, dimension], not yet normalised."""
        out = np.empty((len(texts), self._words.shape[1]), dtype=np.float32)
        # One text at a time: a batch is no faster on a CPU, and alone a text gets the same bits
        # beside any other texts, so an updated index equals a rebuilt one.
        for row, text in enumerate(self._tokenizer.encode_batch(list(texts))):
            x = self._words[text.ids] + self._positions[: len(text.ids)]
            x = self._normalise(x[None], self._norm)
            for layer in self._layers:
                x = self._forward(layer, x)
            out[row] = x[0].mean(0).float().numpy()
        return out

    def _forward(self, layer: "_Layer", x: Tensor) -> Tensor:
        rows, length, width = x.shape
        qkv = layer.qkv(x).view(rows, length, 3, self._heads, -1)
        mixed = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        mixed = mixed.transpose(1, 2).reshape(rows, length, width)
        x = self._normalise(x + layer.out(mixed), layer.out_norm)
        inner = layer.down(functional.gelu(layer.up(x)))
        return self._normalise(x + inner, layer.down_norm)

    def _normalise(self, x: Tensor, norm: tuple[Tensor, Tensor]) -> Tensor:
        return functional.layer_norm(x, (x.shape[-1],), *norm, self._epsilon)


class _Layer:
    """The weights of one layer."""

    def __init__(self, weights: dict[str, Tensor], name: str) -> None:
        def linear(*parts: str) -> Linear:
            return _linear(
                torch.cat([weights[f"{name}.{part}.weight"] for part in parts]),
                torch.cat([weights[f"{name}.{part}.bias"] for part in parts]),
            )

        self.qkv = linear("attention.self.query", "attention.self.key", "attention.self.value")
        self.out = linear("attention.output.dense")
        self.out_norm = _norm(weights, f"{name}.attention.output")
        self.up, self.down = linear("intermediate.dense"), linear("output.dense")
        self.down_norm = _norm(weights, f"{name}.output")


def _linear(weight: Tensor, bias: Tensor) -> Linear:
    """Return x -> x Wᵀ + b for x [texts, length, inputs]."""
    if not _packing_works():
        return partial(functional.linear, weight=weight, bias=bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def product(x: Tensor) -> Tensor:
        # Padded to a multiple of four up to 32, of eight up to 64, and so on: oneDNN keeps a
        # program of half a megabyte for each length.
        length = x.shape[1]
        missing = -length % max(4, (1 << (length - 1).bit_length()) // 8)
        return _multiply(functional.pad(x, (0, 0, 0, missing)), packed, bias)[:, :length]

    return product


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y


@cache
def _packing_works() -> bool:
    """Return whether oneDNN's private operators work: they halve the time of an embedding."""
    x, weight = torch.eye(8), torch.arange(64.0).view(8, 8)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        return torch.equal(_multiply(x, packed, None), weight.T)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def _norm(weights: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"]


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
