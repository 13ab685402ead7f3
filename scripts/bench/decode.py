"""How fast a model decodes: `Sequence.extend` against `transformers.generate`."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor
from transformers import StoppingCriteria

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.checkpoint import load_checkpoint
from dragonrt.backends.torch_.gguf.model import GgufModel
from dragonrt.node.process import load_model
from dragonrt.node.side_settings import SideSettings
from scripts.bench.report import Series, bench_table, print_report

NOTE = (
    "Greedy, one thread, the same prompt in every row; the time from the first new token to the "
    "last, over the tokens after the first (the prompt is not in it). Medians of interleaved "
    "repeats. generate: transformers, in bfloat16 or float32. With rounded weights some tokens "
    "may differ: same says how many agree before the first that does not."
)


def bench_decode(
    *,
    output: Console,
    messages: Console,
    models: Sequence[str] = ("dragon-small", "dragon-opt"),
    rows: Sequence[int] = (1, 2, 4),
    prompt_tokens: int = 200,
    new_tokens: int = 64,
    repeats: int = 5,
) -> None:
    """Milliseconds per token of both, for every model and number of rows."""
    table = bench_table("model", "type", "rows", "generate", "extend", "ratio", "same tokens")
    results: list[dict[str, Any]] = []
    for name in models:
        ours = load_model(SideSettings("device", name, "cpu"))
        theirs = _transformers_model(name)
        theirs.generation_config.eos_token_id = None  # every run makes all of its tokens
        prompt = _prompt(ours, prompt_tokens)
        for count in rows:
            generate_ms, extend_ms, same = [], [], new_tokens
            with messages.status(f"decoding with {name}, {count} rows"):
                for _ in range(repeats):
                    expected, milliseconds = _generate(theirs, prompt, count, new_tokens)
                    generate_ms.append(milliseconds)
                    tokens, milliseconds = _extend(ours, prompt, count, new_tokens)
                    extend_ms.append(milliseconds)
                    same = min(same, _agreeing(tokens, expected))
            generate, extend = Series(tuple(generate_ms)), Series(tuple(extend_ms))
            ratio = generate.median / extend.median
            table.add_row(
                name,
                ours.dtype,
                str(count),
                f"{generate.median:.2f} ms",
                f"{extend.median:.2f} ms",
                f"{ratio:.2f}x",
                f"{same} of {new_tokens}",
            )
            results.append(
                {
                    "model": name,
                    "dtype": ours.dtype,
                    "rows": count,
                    "prompt_tokens": prompt_tokens,
                    "new_tokens": new_tokens,
                    "generate_ms": generate.to_json(),
                    "extend_ms": extend.to_json(),
                    "ratio": round(ratio, 3),
                    "same_tokens": same,
                }
            )
    print_report(output, "decode", table, results, note=NOTE)


def _transformers_model(name: str) -> Any:
    """The model of that name for transformers' own forward, a file's weights dequantised."""
    checkpoint = load_checkpoint(name, "cpu", "auto", bundled.adapter_path(name))
    model: Any = checkpoint.model
    if isinstance(checkpoint.source, GgufModel):
        numbers = checkpoint.source.tensor
        held = {name: numbers(each).bfloat16() for name, each in model.named_parameters()}
        model.load_state_dict(held, strict=False, assign=True)
        model.tie_weights()
    if checkpoint.adapter is not None:
        checkpoint.adapter.merge(model)
    return model


def _agreeing(tokens: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens are the same before the first that is not."""
    pairs = enumerate(zip(tokens, others, strict=True))
    return next((place for place, (one, other) in pairs if one != other), len(tokens))


def _prompt(model: LanguageModel, length: int) -> list[int]:
    """So many tokens of the sample articles."""
    tokens: list[int] = []
    for path in sorted(bundled.documents("cloud").glob("*.md")):
        tokens += model.encode(path.read_text(encoding="utf-8"))
    return tokens[:length]


def _extend(
    model: LanguageModel, prompt: list[int], rows: int, new: int
) -> tuple[list[int], float]:
    """Half of the prompt is the document, as in use: its KV is there, the rest is shared."""
    document = model.document_kv(prompt[: len(prompt) // 2])
    question = prompt[len(prompt) // 2 :]
    sequence = model.sequence([document] * rows, capacity=len(question) + new)
    every = np.arange(model.vocabulary)
    tokens = [int(sequence.extend(question).at(every)[0].argmax())]
    start_s = time.perf_counter()
    while len(tokens) < new:
        tokens.append(int(sequence.extend(tokens[-1:]).at(every)[0].argmax()))
    return tokens, 1000 * (time.perf_counter() - start_s) / (new - 1)


class _Stamps(StoppingCriteria):
    """Takes the time after every token and never stops."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        self.times_s.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def _generate(model: Any, prompt: list[int], rows: int, new: int) -> tuple[list[int], float]:
    stamps = _Stamps()
    inputs = torch.tensor([prompt] * rows)
    with torch.inference_mode():
        result = model.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=[stamps],
        )
    tokens: list[int] = result[0, len(prompt) :].tolist()
    return tokens, 1000 * (stamps.times_s[-1] - stamps.times_s[0]) / (new - 1)
