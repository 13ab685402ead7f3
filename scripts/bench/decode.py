"""How fast a model decodes: `Sequence.extend` against `transformers.generate`."""

import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import torch
from transformers import StoppingCriteria

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.checkpoint import load_checkpoint
from dragonrt.backends.torch_.gguf.model import GgufModel
from dragonrt.cli.options import option
from dragonrt.node.process import load_model
from dragonrt.node.side_settings import SideSettings
from scripts.bench.harness import benchmark, series
from scripts.papers.intervals import Row

MODELS = ("dragon-small", "dragon-opt")


@benchmark(
    {
        "model": "{model}",
        "type": "{dtype}",
        "rows": "{rows}",
        "generate": "{generate_ms[median]:.2f} ms",
        "extend": "{extend_ms[median]:.2f} ms",
        "ratio": "{ratio:.2f}x",
        "same tokens": "{same_tokens} of {new_tokens}",
    },
    note="Greedy, one thread, the same prompt in every row; the time from the first new token to "
    "the last, over the tokens after the first. Medians of interleaved repeats. generate: "
    "transformers, in bfloat16 or float32. With rounded weights some tokens may differ: same says "
    "how many agree before the first that does not.",
)
def decode(
    *,
    model: Annotated[
        tuple[str, ...],
        option("Name, GGUF file, directory or hub id.", default=", ".join(MODELS)),
    ] = MODELS,
    rows: tuple[int, ...] = (1, 2, 4),
    prompt_tokens: int = 200,
    new_tokens: int = 64,
    repeats: int = 5,
) -> Iterator[Row]:
    """Yield the milliseconds per token of both, for every model and number of rows."""
    for name in model:
        ours = load_model(SideSettings("device", name, "cpu"))
        theirs = _transformers_model(name)
        theirs.generation_config.eos_token_id = None  # every run makes all of its tokens
        articles = sorted(bundled.documents("cloud").glob("*.md"))
        texts = (ours.encode(path.read_text(encoding="utf-8")) for path in articles)
        prompt = [token for text in texts for token in text][:prompt_tokens]
        for count in rows:
            times: tuple[list[float], list[float]] = [], []
            same = new_tokens
            for _ in range(repeats):
                expected, generate_ms = _generate(theirs, prompt, count, new_tokens)
                tokens, extend_ms = _extend(ours, prompt, count, new_tokens)
                times[0].append(generate_ms)
                times[1].append(extend_ms)
                pairs = enumerate(zip(tokens, expected, strict=True))
                same = min(same, next((at for at, (a, b) in pairs if a != b), new_tokens))
            generate, extend = map(series, times)
            yield {
                "model": name,
                "dtype": ours.dtype,
                "rows": count,
                "prompt_tokens": prompt_tokens,
                "new_tokens": new_tokens,
                "generate_ms": generate,
                "extend_ms": extend,
                "ratio": generate["median"] / extend["median"],
                "same_tokens": same,
            }


def _transformers_model(name: str) -> Any:
    """Load the model for transformers' own forward, a file's weights dequantised."""
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


def _extend(
    model: LanguageModel, prompt: list[int], rows: int, new: int
) -> tuple[list[int], float]:
    """Decode behind a document, half of the prompt, whose KV is stored, and the other half."""
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
    """Notes the time after every token and never stops."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.times_s.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def _generate(model: Any, prompt: list[int], rows: int, new: int) -> tuple[list[int], float]:
    stamps, inputs = _Stamps(), torch.tensor([prompt] * rows)
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
