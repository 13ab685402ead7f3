"""A Llama model whose linear layers stay as they are, and a LoRA adapter beside them.

Only the adapter has gradients. The frozen products go through oneDNN with weights packed once, one
pack for the product and one of the transposed weights for the input's gradient.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor

RANK = 16
ALPHA = 32
# Each frozen product, and the layers whose rows it joins.
_GROUPS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "in": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


class Rows(Protocol):
    """What the forward reads of a batch."""

    @property
    def tokens(self) -> Tensor: ...
    @property
    def positions(self) -> Tensor: ...
    @property
    def bias(self) -> Tensor: ...
    @property
    def selected(self) -> Tensor: ...


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


def _beside(x: Tensor, frozen: Frozen, low: tuple[Tensor, Tensor]) -> Tensor:
    y: Tensor = _Beside.apply(x, frozen, *low)  # type: ignore[no-untyped-call]
    return y


class Adapter:
    """Matrices A [R, K] and B [N, R], float32, beside every linear layer of a model."""

    def __init__(self, model: "Llama", r: Random, begin: Path | None = None) -> None:
        self.model = model
        stored = load_file(begin / "adapter_model.safetensors") if begin else {}
        scale = 1.0
        if begin:
            config = json.loads((begin / "adapter_config.json").read_text())
            scale = config["lora_alpha"] / config["r"] / (ALPHA / RANK)
        generator = torch.Generator().manual_seed(r.randrange(2**31))
        self.names: list[str] = []
        self.parameters: list[Tensor] = []
        for name, (rows, columns) in model.shapes.items():
            a = torch.randn(RANK, columns, generator=generator) / math.sqrt(columns)
            b = torch.zeros(rows, RANK)
            if stored:
                a = stored[f"{_PREFIX}{name}.lora_A.weight"].float()
                b = stored[f"{_PREFIX}{name}.lora_B.weight"].float() * scale
            self.names.append(name)
            self.parameters += [a.requires_grad_(), b.requires_grad_()]

    def pairs(self) -> dict[str, tuple[Tensor, Tensor]]:
        """(A, scaled B) in bfloat16 of every group `layer.group`, B block-diagonal."""
        low = [p.to(torch.bfloat16) for p in self.parameters]
        by_name = {n: (low[2 * i], low[2 * i + 1]) for i, n in enumerate(self.names)}
        found = {}
        for layer in range(self.model.layers):
            for group, members in _GROUPS.items():
                parts = [by_name[f"layers.{layer}.{member}"] for member in members]
                a = parts[0][0] if len(parts) == 1 else torch.cat([p[0] for p in parts])
                b = _block_diagonal([p[1] for p in parts])
                found[f"{layer}.{group}"] = (a, b * (ALPHA / RANK))
        return found

    def export(self, directory: Path, parameters: list[Tensor]) -> None:
        """Write it in PEFT's layout, in bfloat16."""
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {}
        for i, name in enumerate(self.names):
            for part, p in zip("AB", parameters[2 * i : 2 * i + 2], strict=True):
                tensors[f"{_PREFIX}{name}.lora_{part}.weight"] = p.detach().bfloat16().contiguous()
        unfinished = directory / "adapter_model.safetensors.unfinished"
        save_file(tensors, unfinished, metadata={"format": "pt"})
        unfinished.replace(directory / "adapter_model.safetensors")
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "r": RANK,
            "lora_alpha": ALPHA,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "target_modules": [m.split(".")[1] for members in _GROUPS.values() for m in members],
        }
        (directory / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")


_PREFIX = "base_model.model.model."


class Llama:
    """The frozen part in bfloat16, packed."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._kv_heads = int(config["num_key_value_heads"])
        self._head = int(config["hidden_size"]) // self._heads
        self._epsilon = float(config["rms_norm_eps"])
        rope = config.get("rope_parameters") or config
        exponents = torch.arange(0, self._head, 2).float() / self._head
        self._frequencies = 1.0 / float(rope["rope_theta"]) ** exponents
        tensors = {k.removeprefix("model."): v.bfloat16() for k, v in tensors.items()}
        self._embedding = tensors["embed_tokens.weight"]
        self._output = Frozen.of(tensors.get("lm_head.weight", self._embedding))
        self._norms = {k: v for k, v in tensors.items() if "norm" in k}
        self.shapes: dict[str, tuple[int, int]] = {}
        self._frozen: dict[str, Frozen] = {}
        for layer in range(self.layers):
            for group, members in _GROUPS.items():
                weights = [tensors[f"layers.{layer}.{m}.weight"] for m in members]
                for member, weight in zip(members, weights, strict=True):
                    self.shapes[f"layers.{layer}.{member}"] = (weight.shape[0], weight.shape[1])
                self._frozen[f"{layer}.{group}"] = Frozen.of(torch.cat(weights))

    @classmethod
    def read(cls, directory: Path) -> "Llama":
        config = json.loads((directory / "config.json").read_text())
        return cls(config, load_file(directory / "model.safetensors"))

    def logits(self, rows: Rows, adapter: Adapter) -> Tensor:
        """Float32 logits [S, V] of the selected positions."""
        count, length = rows.tokens.shape
        pairs = adapter.pairs()
        x = self._embedding[rows.tokens.reshape(-1)]
        angles = rows.positions[..., None].float() * self._frequencies
        cos, sin = (
            torch.cat([f(angles)] * 2, -1).bfloat16()[:, None] for f in (torch.cos, torch.sin)
        )

        def beside(x: Tensor, layer: int, group: str) -> Tensor:
            return _beside(x, self._frozen[f"{layer}.{group}"], pairs[f"{layer}.{group}"])

        for layer in range(self.layers):
            h = self._norm(x, f"layers.{layer}.input_layernorm.weight")
            y = beside(h, layer, "qkv")
            y = y.view(count, length, -1, self._head).transpose(1, 2)
            split = [self._heads, self._kv_heads, self._kv_heads]
            q, k, v = torch.split(y, split, 1)
            q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
            y = _attention(q, k, v, rows.bias).transpose(1, 2).reshape(count * length, -1)
            x = x + beside(y, layer, "o")
            h = self._norm(x, f"layers.{layer}.post_attention_layernorm.weight")
            y = beside(h, layer, "in")
            gate, up = y.chunk(2, -1)
            y = F.silu(gate) * up
            x = x + beside(y, layer, "down")
        chosen = self._norm(x.index_select(0, rows.selected), "norm.weight")
        logits: Tensor = _Output.apply(chosen, self._output)  # type: ignore[no-untyped-call]
        return logits.float()

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self._norms[name], self._epsilon)


def _block_diagonal(parts: list[Tensor]) -> Tensor:
    return torch.block_diag(*parts) if len(parts) > 1 else parts[0]  # type: ignore[no-untyped-call]


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
