"""A draft: some layers of a Llama, and its output layer for a part of the vocabulary.

Products are in DTYPE, of weights as the file will hold them (Q4_1) once `rounds` is set.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from torch import Tensor
from typing_extensions import override

from .adapter_model import GROUPS, Body, attention
from .batches import DTYPE

_GROUP, _LARGEST = 32, 15
_SMALLEST_SCALE = 1e-4  # float16 has it with all of its bits
_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_PARTS = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "o": ("attn_output",),
    "in": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}


def held(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes [N, K / 32, 32], scales and least numbers of a weight, as Q4_1 holds them."""
    grouped = weight.detach().float().view(len(weight), -1, _GROUP)
    least, greatest = grouped.aminmax(dim=2)
    scales = ((greatest - least) / _LARGEST).clamp_(min=_SMALLEST_SCALE).half().float()
    least = least.half().float()
    codes = (grouped - least[..., None]).div_(scales[..., None])
    return codes.round_().clamp_(0, _LARGEST), scales, least


def dense(codes: Tensor, scales: Tensor, least: Tensor) -> Tensor:
    """Return the weight [N, K] that they stand for, float32."""
    return (codes * scales[..., None]).add_(least[..., None]).flatten(1)


class _Held(torch.autograd.Function):
    """A float32 weight as DTYPE, rounded to 4 bits or not; the gradient passes."""

    @staticmethod
    @override
    def forward(ctx: Any, weight: Tensor, rounds: bool) -> Tensor:
        return (dense(*held(weight)) if rounds and weight.dim() > 1 else weight).to(DTYPE)

    @staticmethod
    @override
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.float(), None


class Draft(Body):
    """The trained weights are float32; the embedding and the output's rows are the base's."""

    def __init__(
        self,
        config: dict[str, Any],
        tensors: dict[str, Tensor],
        layers: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        super().__init__(config, len(layers))
        self.rounds = False
        self._embedding = tensors["model.embed_tokens.weight"].to(DTYPE)
        output = tensors.get("lm_head.weight", self._embedding)
        self.output = output[torch.tensor(outputs)].to(DTYPE)
        self._outputs = list(outputs)
        named = {"norm.weight": tensors["model.norm.weight"]}
        for new, old in enumerate(layers):
            for norm in _NORMS:
                name = f"{norm}.weight"
                named[f"layers.{new}.{name}"] = tensors[f"model.layers.{old}.{name}"]
            for group, members in GROUPS.items():
                parts = [tensors[f"model.layers.{old}.{m}.weight"] for m in members]
                named[f"{new}.{group}"] = torch.cat(parts)
        self._names = list(named)
        self.parameters = [t.detach().float().clone().requires_grad_() for t in named.values()]

    def hidden(self, tokens: Tensor, positions: Tensor, bias: Tensor) -> Tensor:
        """Return what the output layer multiplies, DTYPE [R, T, hidden]."""
        weights: dict[str, Tensor] = {
            name: _Held.apply(each, self.rounds)  # type: ignore[no-untyped-call]
            for name, each in zip(self._names, self.parameters, strict=True)
        }

        def multiply(x: Tensor, key: str) -> Tensor:
            return x @ weights[key].T

        def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention(q, k, v, bias)

        x = self._embedding[tokens.reshape(-1)]
        x = self.states(x, positions, weights, multiply, attend)
        return self.norm(x, weights["norm.weight"]).view(*tokens.shape, -1)

    def export(self, weights: Sequence[Tensor], path: Path, base: Path, name: str) -> None:
        """Write it with these values of its parameters, as a GGUF file that needs its base's.

        `name` is what the runtime calls the base.
        """
        unfinished = path.with_name(path.name + ".unfinished")
        writer = GGUFWriter(unfinished, "llama")
        fields = GGUFReader(base).fields.items()
        shape = {key: each.contents() for key, each in fields if key.startswith("llama.")}
        for key, value in (shape | {"llama.block_count": self.layers}).items():
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
        writer.add_string("dragonrt.base", name)
        with base.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        writer.add_string("dragonrt.base_fingerprint", digest)
        writer.add_array("dragonrt.output_tokens", self._outputs)
        for name, weight in zip(self._names, weights, strict=True):
            for stored, part in self._stored(name, weight.detach().cpu()):
                if part.dim() == 1:
                    writer.add_tensor(stored, part.numpy())
                else:
                    writer.add_tensor(stored, _blocks(part), raw_dtype=GGMLQuantizationType.Q4_1)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        unfinished.replace(path)

    def _stored(self, name: str, weight: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of the file that a parameter is, with llama.cpp's order of rows."""
        if weight.dim() == 1:
            _, _, layer = name.removesuffix(".weight").partition("layers.")
            number, _, norm = layer.partition(".")
            yield (f"blk.{number}.{_NORMS[norm]}" if norm else "output_norm") + ".weight", weight
            return
        layer, _, group = name.partition(".")
        heads = {"attn_q": self.heads, "attn_k": self.kv_heads}
        shares = [self.heads, self.kv_heads, self.kv_heads] if group == "qkv" else [1] * 2
        unit = self.head if group == "qkv" else len(weight) // len(_PARTS[group])
        sizes = [unit * share for share, _ in zip(shares, _PARTS[group], strict=False)]
        for part, rows in zip(_PARTS[group], torch.split(weight, sizes), strict=True):
            if part in heads:
                halves = rows.view(heads[part], 2, -1, rows.shape[1])
                rows = halves.transpose(1, 2).reshape(rows.shape)
            yield f"blk.{layer}.{part}.weight", rows


def _blocks(weight: Tensor) -> Any:
    """Return the bytes of Q4_1: uint8 [rows, bytes of a row]."""
    codes, scales, least = held(weight)
    codes = codes.to(torch.uint8)
    halves = codes[..., : _GROUP // 2] | codes[..., _GROUP // 2 :] << 4
    ends = torch.stack([scales, least], 2).half().view(torch.uint8).view(*scales.shape, 4)
    return torch.cat([ends, halves], 2).flatten(1).numpy()
