"""What a draft learns from: the target's answers, and its hidden states at every position.

A state is what the output layer multiplies. Any part of the target's distribution is one product of
it, so that a draft is trained for several epochs after one forward of the target.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor

from .adapter_model import Llama, attention, product
from .batches import DTYPE, MASKED, padded
from .checkpoints import ADAPTER_CONFIG, ADAPTER_WEIGHTS

PROMPT, ANSWER, CHAT = range(3)
"""What a position predicts: more of a prompt, of an answer from a document, of a chat's answer."""

_FIELDS = ("tokens", "positions", "branches", "kinds")
_Cache = list[tuple[Tensor, Tensor]]  # keys and values of every layer


@dataclass(slots=True)
class Row:
    """A text with the branch and kind of every position; branch 0 is seen by all that follow.

    `states` is DTYPE [n, hidden], where they were computed. `labels` has positions of kind
    ANSWER and the tokens after them.
    """

    tokens: list[int]
    positions: list[int]
    branches: list[int]
    kinds: list[int]
    states: Tensor | None = None
    labels: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def prompt(cls, tokens: Sequence[int]) -> "Row":
        """Return a prompt whose last position predicts a chat's answer."""
        n = len(tokens)
        return cls(list(tokens), list(range(n)), [0] * n, [PROMPT] * (n - 1) + [CHAT])

    def append(self, token: int) -> None:
        """Append a token of a chat's answer."""
        self.positions.append(len(self.tokens))
        self.tokens.append(token)
        self.branches.append(0)
        self.kinds.append(CHAT)


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows with their states."""
    flat = {n: torch.tensor([x for row in rows for x in getattr(row, n)]) for n in _FIELDS}
    flat["lengths"] = torch.tensor([len(row.tokens) for row in rows])
    flat["states"] = torch.cat([row.states for row in rows if row.states is not None])
    save_file(flat, path)


def read_rows(path: Path) -> list[Row]:
    """Read what `write_rows` wrote."""
    flat = load_file(path)
    sizes = flat["lengths"].tolist()
    parts = {name: torch.split(flat[name], sizes) for name in (*_FIELDS, "states")}
    lists = [[part.tolist() for part in parts[name]] for name in _FIELDS]
    return [Row(*row) for row in zip(*lists, parts["states"], strict=True)]


def tensors_of(base: Path, adapter: Path | None = None) -> dict[str, Tensor]:
    """Read a checkpoint's tensors, with an adapter merged into them if one is named."""
    tensors = load_file(base / "model.safetensors")
    if adapter is None:
        return tensors
    config = json.loads((adapter / ADAPTER_CONFIG).read_text())
    stored = load_file(adapter / ADAPTER_WEIGHTS)
    for name in stored:
        if ".lora_A." in name:
            a, b = stored[name].float(), stored[name.replace("lora_A", "lora_B")].float()
            key = name.removeprefix("base_model.model.").replace(".lora_A", "")
            tensors[key] = tensors[key].float() + b @ a * (config["lora_alpha"] / config["r"])
    return tensors


class Teacher:
    """A frozen Llama that reads rows, and writes answers."""

    def __init__(self, base: Path, adapter: Path | None = None) -> None:
        config: dict[str, Any] = json.loads((base / "config.json").read_text())
        self._model = Llama(config, tensors_of(base, adapter))

    @torch.inference_mode()
    def read(self, rows: Sequence[Row], room: int = 0) -> _Cache:
        """Give each row its states; return keys and values with room for more positions."""
        tokens, positions, bias = padded(rows)
        cache: _Cache = []
        for row, states in zip(rows, self._forward(tokens, positions, bias, cache), strict=True):
            row.states = states[: len(row.tokens)].clone()
        return [(F.pad(k, (0, 0, 0, room)), F.pad(v, (0, 0, 0, room))) for k, v in cache]

    @torch.inference_mode()
    def answer(
        self, rows: Sequence[Row], most: int, temperatures: Sequence[float], end: int
    ) -> None:
        """Append an answer of at most `most` tokens to each prompt, with the states of both."""
        length = max(len(row.tokens) for row in rows)
        cache = self.read(rows, room=most)
        bias = torch.zeros(len(rows), 1, 1, length + most, dtype=DTYPE)
        for i, row in enumerate(rows):
            bias[i, ..., len(row.tokens) : length] = MASKED
        heat = torch.tensor(temperatures)
        alive = list(rows)
        made = {id(row): [row.states] for row in rows}
        last = torch.stack([row.states[-1] for row in rows if row.states is not None])
        for used in range(length + 1, length + most + 1):
            chosen = self._sampled(last, heat)
            kept = [i for i, token in enumerate(chosen) if token != end]
            if not kept:
                break
            if len(kept) < len(alive):
                alive, chosen = [alive[i] for i in kept], [chosen[i] for i in kept]
                bias, heat = bias[kept], heat[kept]
                cache = [(k[kept], v[kept]) for k, v in cache]
            for row, token in zip(alive, chosen, strict=True):
                row.append(token)
            at = torch.tensor([[row.positions[-1]] for row in alive])
            tokens = torch.tensor(chosen)[:, None]
            last = self._forward(tokens, at, bias[..., :used], cache, used)[:, 0]
            for row, state in zip(alive, last, strict=True):
                made[id(row)].append(state[None])
        for row in rows:
            row.states = torch.cat([each for each in made[id(row)] if each is not None])

    def _sampled(self, states: Tensor, heat: Tensor) -> list[int]:
        logits = product(states, self._model.output.forward).float()
        warm = heat.nonzero()[:, 0]
        noise = torch.rand(len(warm), logits.shape[1]).clamp_(min=1e-9).log_().neg_().log_()
        logits.index_add_(0, warm, noise.mul_(heat[warm, None]), alpha=-1)
        chosen: list[int] = logits.argmax(1).tolist()
        return chosen

    def _forward(
        self, tokens: Tensor, positions: Tensor, bias: Tensor, cache: _Cache, used: int = 0
    ) -> Tensor:
        """Return the states [R, T, hidden]; fill an empty cache, or the column before `used`."""
        model = self._model

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if used:
                keys, values = (each[:, :, :used] for each in cache[layer])
                keys[:, :, -1:], values[:, :, -1:] = k, v
                k, v = keys, values
            else:
                cache.append((k, v))
            return attention(q, k, v, bias)

        def multiply(x: Tensor, key: str) -> Tensor:
            return product(x, model.frozen[key].forward)

        x = model.embedding[tokens.reshape(-1)]
        x = model.states(x, positions, model.norms, multiply, attend)
        return model.norm(x, model.norms["norm.weight"]).view(*tokens.shape, -1)
