"""A Llama model whose linear layers stay as they are, and a LoRA adapter beside them.

Only the adapter has gradients. The frozen products go through oneDNN with weights packed once, one
pack for the product and one of the transposed weights for the input's gradient.
"""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor

from .batches import Batch
from .checkpoints import ADAPTER_CONFIG, ADAPTER_WEIGHTS

_CONFIG = Path(__file__).parent / "text" / "adapter_config.json"
RANK, ALPHA = (json.loads(_CONFIG.read_text())[name] for name in ("r", "lora_alpha"))
# Each frozen product, and the layers whose rows it joins.
_GROUPS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "in": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_PREFIX = "base_model.model.model."


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return packed


def _product(x: Tensor, packed: Tensor) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
    return y


@dataclass(frozen=True, slots=True)
class Frozen:
    """A weight [N, K] in two packs."""

    forward: Tensor
    backward: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "Frozen":
        """Pack a weight."""
        return cls(_pack(weight), _pack(weight.T))


class _Beside(torch.autograd.Function):
    """x W^T + x A^T B^T for a frozen W; A [G R, K] and B [N, G R] in bfloat16, B scaled."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, frozen: Frozen, a: Tensor, b: Tensor) -> Tensor:
        low = x @ a.T
        y = _product(x, frozen.forward)
        y.addmm_(low, b.T)
        ctx.save_for_backward(x, low, a, b)
        ctx.frozen = frozen
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        x, low, a, b = ctx.saved_tensors
        dy = dy.contiguous()
        dlow = dy @ b
        dx = _product(dy, ctx.frozen.backward)
        dx.addmm_(dlow, a)
        return dx, None, dlow.T @ x, dy.T @ low


class _Output(torch.autograd.Function):
    """Logits of a frozen output layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, frozen: Frozen) -> Tensor:
        ctx.frozen = frozen
        return _product(x, frozen.forward)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return _product(dy.contiguous(), ctx.frozen.backward), None


class Llama:
    """The frozen part in bfloat16, packed."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.layers = int(config["num_hidden_layers"])
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config["num_key_value_heads"])
        self.head = int(config["hidden_size"]) // self.heads
        self._epsilon = float(config["rms_norm_eps"])
        rope = config.get("rope_parameters") or config
        exponents = torch.arange(0, self.head, 2).float() / self.head
        self._frequencies = 1.0 / float(rope["rope_theta"]) ** exponents
        tensors = {k.removeprefix("model."): v.bfloat16() for k, v in tensors.items()}
        self.embedding = tensors["embed_tokens.weight"]
        self.output = Frozen.of(tensors.get("lm_head.weight", self.embedding))
        self._norms = {k: v for k, v in tensors.items() if "norm" in k}
        self.shapes: dict[str, tuple[int, int]] = {}
        self.frozen: dict[str, Frozen] = {}
        for layer in range(self.layers):
            for group, members in _GROUPS.items():
                weights = [tensors[f"layers.{layer}.{m}.weight"] for m in members]
                for member, weight in zip(members, weights, strict=True):
                    self.shapes[f"layers.{layer}.{member}"] = (weight.shape[0], weight.shape[1])
                self.frozen[f"{layer}.{group}"] = Frozen.of(torch.cat(weights))

    @classmethod
    def read(cls, directory: Path) -> "Llama":
        """Read a checkpoint directory with one file of weights."""
        config = json.loads((directory / "config.json").read_text())
        return cls(config, load_file(directory / "model.safetensors"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Return the RMS norm of that name."""
        return F.rms_norm(x, (x.shape[-1],), self._norms[name], self._epsilon)

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [R, 1, T, head] of the rotary embedding."""
        angles = positions[..., None].float() * self._frequencies
        angles = torch.cat([angles] * 2, -1)[:, None]
        return angles.cos().bfloat16(), angles.sin().bfloat16()


class Adapter:
    """Matrices A [R, K] and B [N, R], float32, beside every linear layer of a model."""

    def __init__(self, model: Llama, begin: Path | None = None) -> None:
        self._model = model
        stored = load_file(begin / ADAPTER_WEIGHTS) if begin else {}
        scale = 1.0
        if begin:
            config = json.loads((begin / ADAPTER_CONFIG).read_text())
            scale = config["lora_alpha"] / config["r"] / (ALPHA / RANK)
        generator = torch.Generator().manual_seed(Random(0).randrange(2**31))
        self.parameters: list[Tensor] = []
        for name, (rows, columns) in model.shapes.items():
            a = torch.randn(RANK, columns, generator=generator) / math.sqrt(columns)
            b = torch.zeros(rows, RANK)
            if stored:
                a = stored[f"{_PREFIX}{name}.lora_A.weight"].float()
                b = stored[f"{_PREFIX}{name}.lora_B.weight"].float() * scale
            self.parameters += [a.requires_grad_(), b.requires_grad_()]

    def logits(self, batch: Batch) -> Tensor:
        """Return the float32 logits [S, V] of the selected positions."""
        model, (count, length) = self._model, batch.tokens.shape
        pairs = self._pairs()
        x = model.embedding[batch.tokens.reshape(-1)]
        cos, sin = model.rotation(batch.positions)

        def beside(x: Tensor, layer: int, group: str) -> Tensor:
            key = f"{layer}.{group}"
            y: Tensor = _Beside.apply(x, model.frozen[key], *pairs[key])  # type: ignore[no-untyped-call]
            return y

        for layer in range(model.layers):
            h = model.norm(x, f"layers.{layer}.input_layernorm.weight")
            y = beside(h, layer, "qkv").view(count, length, -1, model.head).transpose(1, 2)
            q, k, v = torch.split(y, [model.heads, model.kv_heads, model.kv_heads], 1)
            q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
            y = _attention(q, k, v, batch.bias).transpose(1, 2).reshape(count * length, -1)
            x = x + beside(y, layer, "o")
            h = model.norm(x, f"layers.{layer}.post_attention_layernorm.weight")
            gate, up = beside(h, layer, "in").chunk(2, -1)
            x = x + beside(F.silu(gate) * up, layer, "down")
        chosen = model.norm(x.index_select(0, batch.selected), "norm.weight")
        logits: Tensor = _Output.apply(chosen, model.output)  # type: ignore[no-untyped-call]
        return logits.float()

    def _pairs(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return (A, scaled B) in bfloat16 of every `layer.group`, B block-diagonal."""
        low = [p.to(torch.bfloat16) for p in self.parameters]
        by_name = dict(zip(self._model.shapes, zip(low[::2], low[1::2], strict=True), strict=True))
        found = {}
        for layer in range(self._model.layers):
            for group, members in _GROUPS.items():
                parts = [by_name[f"layers.{layer}.{member}"] for member in members]
                b = torch.block_diag(*(b for _, b in parts))  # type: ignore[no-untyped-call]
                found[f"{layer}.{group}"] = (torch.cat([a for a, _ in parts]), b * (ALPHA / RANK))
        return found

    def export(self, directory: Path, weights: Sequence[Tensor]) -> None:
        """Write it with these values of its parameters, in PEFT's layout, in bfloat16."""
        directory.mkdir(parents=True, exist_ok=True)
        names = [f"{_PREFIX}{n}.lora_{part}.weight" for n in self._model.shapes for part in "AB"]
        stored = [p.detach().bfloat16().contiguous() for p in weights]
        unfinished = directory / f"{ADAPTER_WEIGHTS}.unfinished"
        tensors = dict(zip(names, stored, strict=True))
        save_file(tensors, unfinished, metadata={"format": "pt"})
        unfinished.replace(directory / ADAPTER_WEIGHTS)
        shutil.copy(_CONFIG, directory / ADAPTER_CONFIG)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin


def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Grouped attention by plain products, which beat the fused kernel's backward here."""
    rows, heads, length, size = q.shape
    q = (q * size**-0.5).reshape(rows, k.shape[1], -1, size)
    scores = (q @ k.transpose(-1, -2)).view(rows, heads, length, length) + bias
    weights = torch.softmax(scores, -1).view(rows, k.shape[1], -1, length)
    return (weights @ v).view(rows, heads, length, size)
