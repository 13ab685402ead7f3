"""A Llama model whose linear layers stay as they are, and a LoRA adapter beside them.

Only the adapter has gradients. The frozen products go through oneDNN with weights packed once, one
pack for the product and one of the transposed weights for the input's gradient.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor
from typing_extensions import override

from .batches import DTYPE, Batch
from .checkpoints import ADAPTER_CONFIG, ADAPTER_WEIGHTS

CONFIG = Path(__file__).parent / "text" / "adapter_config.json"
RANK, ALPHA = (json.loads(CONFIG.read_text())[name] for name in ("r", "lora_alpha"))
SCALE = ALPHA / RANK
# Each frozen product, and the layers whose rows it joins.
GROUPS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "in": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
PREFIX = "base_model.model.model."


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    return packed


def product(x: Tensor, packed: Tensor) -> Tensor:
    """Return x Wᵀ for a packed weight W [N, K]: [..., N]."""
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
    """x W^T + x A^T B^T for a frozen W; A [G R, K] and B [N, G R] in DTYPE, B scaled."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, frozen: Frozen, a: Tensor, b: Tensor) -> Tensor:
        low = x @ a.T
        y = product(x, frozen.forward)
        y.addmm_(low, b.T)
        ctx.save_for_backward(x, low, a, b)
        ctx.frozen = frozen
        return y

    @staticmethod
    @override
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        x, low, a, b = ctx.saved_tensors
        dy = dy.contiguous()
        dlow = dy @ b
        dx = product(dy, ctx.frozen.backward)
        dx.addmm_(dlow, a)
        return dx, None, dlow.T @ x, dy.T @ low


class _Output(torch.autograd.Function):
    """Logits of a frozen output layer."""

    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor, frozen: Frozen) -> Tensor:
        ctx.frozen = frozen
        return product(x, frozen.forward)

    @staticmethod
    @override
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return product(dy.contiguous(), ctx.frozen.backward), None


class Body:
    """The shape of a Llama, and the order of what a layer does."""

    def __init__(self, config: dict[str, Any], layers: int) -> None:
        self.layers = layers
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config["num_key_value_heads"])
        self.head = int(config["hidden_size"]) // self.heads
        self._epsilon = float(config["rms_norm_eps"])
        rope = config.get("rope_parameters") or config
        exponents = torch.arange(0, self.head, 2).float() / self.head
        self._frequencies = 1.0 / float(rope["rope_theta"]) ** exponents

    def states(
        self,
        x: Tensor,
        positions: Tensor,
        norms: Mapping[str, Tensor],
        multiply: Callable[[Tensor, str], Tensor],
        attend: Callable[[int, Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Return what the layers make of embeddings [R T, hidden], before the last norm.

        `multiply` has the product of a `layer.group`; `attend` gets the layer's number, rotated
        queries and keys, and values, [R, heads, T, head].
        """
        angles = positions[..., None].float() * self._frequencies
        angles = torch.cat([angles] * 2, -1)[:, None]
        cos, sin = angles.cos().to(DTYPE), angles.sin().to(DTYPE)
        sizes = [self.heads, self.kv_heads, self.kv_heads]
        for i in range(self.layers):
            y = multiply(self.norm(x, norms[f"layers.{i}.input_layernorm.weight"]), f"{i}.qkv")
            y = y.view(*positions.shape, -1, self.head).transpose(1, 2)
            q, k, v = torch.split(y, sizes, 1)
            y = attend(i, _rotated(q, cos, sin), _rotated(k, cos, sin), v)
            x = x + multiply(y.transpose(1, 2).reshape(len(x), -1), f"{i}.o")
            h = self.norm(x, norms[f"layers.{i}.post_attention_layernorm.weight"])
            gate, up = multiply(h, f"{i}.in").chunk(2, -1)
            x = x + multiply(F.silu(gate) * up, f"{i}.down")
        return x

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the RMS norm."""
        return F.rms_norm(x, (x.shape[-1],), weight, self._epsilon)


class Llama(Body):
    """The frozen part in DTYPE, packed."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(config, int(config["num_hidden_layers"]))
        tensors = {k.removeprefix("model."): v.to(DTYPE) for k, v in tensors.items()}
        self.embedding = tensors["embed_tokens.weight"]
        self.output = Frozen.of(tensors.get("lm_head.weight", self.embedding))
        self.norms = {k: v for k, v in tensors.items() if "norm" in k}
        self.shapes: dict[str, tuple[int, int]] = {}
        self.frozen: dict[str, Frozen] = {}
        for layer in range(self.layers):
            for group, members in GROUPS.items():
                weights = [tensors[f"layers.{layer}.{m}.weight"] for m in members]
                for member, weight in zip(members, weights, strict=True):
                    self.shapes[f"layers.{layer}.{member}"] = (weight.shape[0], weight.shape[1])
                self.frozen[f"{layer}.{group}"] = Frozen.of(torch.cat(weights))

    @classmethod
    def read(cls, directory: Path) -> "Llama":
        """Read a checkpoint directory with one file of weights."""
        config = json.loads((directory / "config.json").read_text())
        return cls(config, load_file(directory / "model.safetensors"))


class Adapter:
    """Matrices A [R, K] and B [N, R], float32, beside every linear layer of a model.

    `inputs`, if it is set, sums the squares of the inputs [columns] of each `layer.group`.
    """

    inputs: dict[str, Tensor] | None = None

    def __init__(self, model: Llama, begin: Path | None = None) -> None:
        self._model = model
        stored = load_file(begin / ADAPTER_WEIGHTS) if begin else {}
        scale = 1.0
        if begin:
            config = json.loads((begin / ADAPTER_CONFIG).read_text())
            scale = config["lora_alpha"] / config["r"] / SCALE
        generator = torch.Generator().manual_seed(Random(0).randrange(2**31))
        self.parameters: list[Tensor] = []
        for name, (rows, columns) in model.shapes.items():
            a = torch.randn(RANK, columns, generator=generator) / math.sqrt(columns)
            b = torch.zeros(rows, RANK)
            if stored:
                a = stored[f"{PREFIX}{name}.lora_A.weight"].float()
                b = stored[f"{PREFIX}{name}.lora_B.weight"].float() * scale
            self.parameters += [a.requires_grad_(), b.requires_grad_()]

    def logits(self, batch: Batch) -> Tensor:
        """Return the float32 logits [S, V] of the selected positions."""
        model, pairs = self._model, self._pairs()

        def beside(x: Tensor, key: str) -> Tensor:
            if self.inputs is not None:
                here = x.detach().float().square().sum(0)
                self.inputs[key] = self.inputs.get(key, torch.zeros_like(here)) + here
            y: Tensor = _Beside.apply(x, model.frozen[key], *pairs[key])  # type: ignore[no-untyped-call]
            return y

        def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention(q, k, v, batch.bias)

        x = model.embedding[batch.tokens.reshape(-1)]
        x = model.states(x, batch.positions, model.norms, beside, attend)
        chosen = model.norm(x.index_select(0, batch.selected), model.norms["norm.weight"])
        logits: Tensor = _Output.apply(chosen, model.output)  # type: ignore[no-untyped-call]
        return logits.float()

    def _pairs(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return (A, scaled B) in DTYPE of every `layer.group`, B block-diagonal."""
        low = [p.to(DTYPE) for p in self.parameters]
        by_name = dict(zip(self._model.shapes, zip(low[::2], low[1::2], strict=True), strict=True))
        found = {}
        for layer in range(self._model.layers):
            for group, members in GROUPS.items():
                parts = [by_name[f"layers.{layer}.{member}"] for member in members]
                b = torch.block_diag(*(b for _, b in parts))  # type: ignore[no-untyped-call]
                found[f"{layer}.{group}"] = (torch.cat([a for a, _ in parts]), b * SCALE)
        return found

    def export(self, directory: Path, weights: Sequence[Tensor]) -> None:
        """Write it with these values of its parameters, in PEFT's layout, in bfloat16."""
        directory.mkdir(parents=True, exist_ok=True)
        names = [f"{PREFIX}{n}.lora_{part}.weight" for n in self._model.shapes for part in "AB"]
        stored = [p.detach().bfloat16().contiguous() for p in weights]
        unfinished = directory / f"{ADAPTER_WEIGHTS}.unfinished"
        tensors = dict(zip(names, stored, strict=True))
        save_file(tensors, unfinished, metadata={"format": "pt"})
        unfinished.replace(directory / ADAPTER_WEIGHTS)
        shutil.copy(CONFIG, directory / ADAPTER_CONFIG)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cos + turned * sin


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Grouped attention by plain products, which beat the fused kernel's backward here."""
    rows, heads, length, size = q.shape
    q = (q * size**-0.5).reshape(rows, k.shape[1], -1, size)
    scores = (q @ k.transpose(-1, -2)).view(rows, heads, length, -1) + bias
    weights = torch.softmax(scores, -1).view(rows, k.shape[1], -1, k.shape[2])
    return (weights @ v).view(rows, heads, length, size)
