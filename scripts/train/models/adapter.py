"""Train the reader: a LoRA adapter of a Llama model, on the likelihood of mixtures (SPEC 5)."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from dragonrt import bundled
from dragonrt.cli.loading import showing_progress
from dragonrt.cli.options import option
from scripts.train.loop import run
from scripts.train.models.files import llama_cpp_name, unpermuted
from scripts.train.models.sample import UNKNOWN, Rows, batches, load, read_rows, states

RANK, ALPHA = 16, 32
_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_FIRST_WEIGHT = 2.0  # of an answer's first token, which decides whether it is a refusal
_TEMPERATURES = (0.1, 0.15, 0.2, 0.3)  # of the relevances; one of them for each batch
_FLAT = 0.1  # of what a row loses that is sure of a wrong token
_DOUBT, _SUREST = 1.0, 1 - 1e-6  # as answers are decoded: see `dragonrt.backends.mixture`


def mixture_losses(each: Rows, logits: Tensor, temperature: float, refusal: int) -> Tensor:
    """Return -log sum_i w_i p(y_t | document i, y before t) of every target (SPEC 5).

    The weights are those of decoding: w = softmax of cosine / temperature + log(1 - P(refusal)),
    with the probability of the refusal's first token after the question. After an answer's first
    token a row that is sure of another one than y_t loses, too: -log(1 - its probability), times
    _FLAT. So a document that does not know the rest of an answer leaves it to the others.

    Args:
        each: a reading.
        logits: float32 [rows, targets, V].
        temperature: of the relevances.
        refusal: that first token.
    """
    targets = torch.tensor([token for _, token, _ in each.rows[0].targets])
    first = torch.tensor([first for *_, first in each.rows[0].targets])
    logs = torch.log_softmax(logits, -1)
    wanted = targets.expand(len(logs), -1)[..., None]
    said = logs.gather(2, wanted)[..., 0]
    refused = logs[:, first, refusal].exp().clamp(max=_SUREST)
    others = logs.scatter(2, wanted, -torch.inf).amax(2)
    sure = -torch.log1p(-others.exp().clamp(max=_SUREST))
    relevances = torch.tensor(each.scores).T / temperature
    weights = torch.log_softmax(relevances + _DOUBT * torch.log1p(-refused), 0)
    likelihood = torch.logsumexp(said + weights[:, first.cumsum(0) - 1], 0)
    return -(likelihood - _FLAT * sure.mean(0) * ~first)


def with_adapter(llama: Any, begin: Path | None, *, trained: bool = False) -> PeftModel:
    """Put an adapter beside a Llama's linear layers: a new one, or PEFT's or GGUF's."""
    if begin is not None and begin.is_dir():
        return PeftModel.from_pretrained(llama, str(begin), is_trainable=trained)
    torch.manual_seed(0)
    model: PeftModel = get_peft_model(
        llama, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=_MODULES)
    )
    if begin is not None:
        stored = {each.name: each for each in GGUFReader(begin).tensors}
        for name, layer in _lora(llama):
            tensor = llama_cpp_name(f"{name}.weight", llama.config.num_hidden_layers)
            a, b = (stored[f"{tensor}.lora_{part}"] for part in "ab")
            down, up = (dequantize(each.data, each.tensor_type) for each in (a, b))
            up = unpermuted(tensor, up.T * RANK / ALPHA, llama.config.to_dict())
            layer.lora_A["default"].weight.data.copy_(torch.from_numpy(down))
            layer.lora_B["default"].weight.data.copy_(torch.from_numpy(up.copy()))
    return model


def _lora(llama: Any) -> list[tuple[str, Any]]:
    return [(name, each) for name, each in llama.named_modules() if isinstance(each, LoraLayer)]


Base = Annotated[Path | None, option("Directory of the Llama model; else SmolLM2.", kind="DIR")]


def adapter(
    samples: Path,
    out: Path,
    *,
    base: Base = None,
    begin: Annotated[
        Path | None, option("Adapter that it begins with; else the bundled one.", kind="PATH")
    ] = None,
    fresh: Annotated[bool, option("Begin with a new adapter.")] = False,
    steps: Annotated[int, option("Steps in all.", default="1000", low=1)] = 1000,
    rate: Annotated[float, option("Highest learning rate.", default="0.0006")] = 6e-4,
    positions: Annotated[int, option("Tokens of a step at most.", default="1200", low=1)] = 1200,
    seed: Annotated[int, option("Of the samples' order.", default="1", low=0)] = 1,
) -> None:
    """Train a LoRA adapter and write OUT/adapter, in PEFT's layout. A stopped run resumes.

    Args:
        samples: what `adapter-samples` wrote.
        out: a directory.
    """
    llama, tokenizer = load(base)
    model = with_adapter(llama, None if fresh else begin or bundled.ADAPTER_FILE, trained=True)
    refusal = tokenizer(UNKNOWN, add_special_tokens=False).input_ids[0]

    def loss(step: int, batch: Sequence[Rows]) -> Tensor:
        temperature = Random(f"{seed}/{step}").choice(_TEMPERATURES)
        hidden = states(llama, [row for each in batch for row in each.rows])
        total, weight, start = torch.zeros(()), 0.0, 0
        for each in batch:
            here = [hidden[start + i, [p for p, *_ in r.targets]] for i, r in enumerate(each.rows)]
            logits = llama.lm_head(torch.stack(here)).float()
            losses = mixture_losses(each, logits, temperature, refusal)
            firsts = torch.tensor([first for *_, first in each.rows[0].targets])
            weights = torch.where(firsts, _FIRST_WEIGHT, 1.0)
            total, weight = total + (losses * weights).sum(), weight + float(weights.sum())
            start += len(each.rows)
        return total / weight

    def save() -> None:
        model.save_pretrained(str(out / "adapter"), save_embedding_layers=False)
        llama.config.save_pretrained(out / "adapter")

    made = batches(read_rows(samples, tokenizer), seed, positions)
    run(model, made, loss, save, out / "adapter.state", steps=steps, rate=rate)


def statistics(
    samples: Path,
    out: Path,
    *,
    base: Base = None,
    adapter: Annotated[Path | None, option("Adapter in PEFT's layout.", kind="DIR")] = None,
    n: Annotated[int, option("Samples that are read.", default="120", low=1)] = 120,
) -> None:
    """Write the mean squares of each linear layer's inputs, by which files are rounded.

    Args:
        samples: what `adapter-samples` wrote, of all kinds of text; each position counts once.
        out: the npz file, by the names of GGUF's tensors.
    """
    llama, tokenizer = load(base)
    if adapter is not None:
        with_adapter(llama, adapter)
    sums, positions = dict[str, Tensor](), 0

    def listen(name: str, module: nn.Module) -> None:
        def add(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            squares = inputs[0].float().square().sum((0, 1))
            sums[name] = sums[name] + squares if name in sums else squares

        module.register_forward_pre_hook(add)

    for name, module in llama.model.named_modules():
        if name.rpartition(".")[2] in _MODULES:
            listen(llama_cpp_name(f"model.{name}.weight", llama.config.num_hidden_layers), module)
    readings = read_rows(samples, tokenizer)[:n]
    with torch.no_grad(), showing_progress("reading samples") as show:
        for number, each in enumerate(readings):
            for row in each.rows:
                states(llama, [row])  # alone, so that nothing is padded
                positions += len(row.tokens)
            show(number + 1, len(readings), f"{positions} positions")
    found: dict[str, Any] = {name: (each / positions).numpy() for name, each in sums.items()}
    np.savez(out, **found)
