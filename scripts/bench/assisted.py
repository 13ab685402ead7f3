"""How fast speculative decoding is without a network: against transformers' assisted generation."""

import time
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, get_args

import torch
from rich.console import Console

from dragonrt.backends.prompt import Prompt, TextKind
from dragonrt.backends.torch_.checkpoint import load_checkpoint
from dragonrt.distributions import codec
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import speculative_rule
from scripts.bench.report import Series, bench_table, print_report
from scripts.papers.speculation import DRAFT, TARGET, Speculation, alone, model_pair
from scripts.papers.texts import prompts
from scripts.train.controllers.model_pair import ModelPair

NOTE = (
    "Tokens per second at temperature T, one thread, prompts read included: answers from a "
    "document to their end, and prose; medians of interleaved repeats. transformers generates, "
    "alone and assisted, with block lengths of its own and with ours; then our target alone, and "
    "our pair. The ratio is our pair over the faster assisted. "
    "Texts are compared at temperature 0, where all ways are exact."
)

Generate = Callable[[Prompt], list[int]]
"""From a prompt to the new tokens."""


def bench_assisted(
    *,
    output: Console,
    messages: Console,
    temperatures: Sequence[float] = (0.0, 0.8),
    length: int = 4,
    new_tokens: int = 48,
    prompt_count: int = 4,
    repeats: int = 3,
    seed: int = 0,
) -> None:
    """Tokens per second of the bundled pair in one process, blocks of `length`, coupled noise."""
    pair = model_pair()
    found = prompts(pair.draft, 2 * prompt_count)
    asked = {kind: [each for each in found if each.kind == kind] for kind in get_args(TextKind)}
    columns = ("generate", "assisted", f"assisted:{length}", "alone", "speculative")
    table = bench_table("text", "T", *columns, "ratio", "same")
    results: list[dict[str, Any]] = []
    for (kind, some), temperature in product(asked.items(), temperatures):
        theirs = (
            _generate(temperature, new_tokens, None, seed),
            _generate(temperature, new_tokens, 0, seed),
            _generate(temperature, new_tokens, length, seed),
        )
        ours = (
            _alone(pair, Sampler(temperature), new_tokens, seed),
            _speculative(pair, Sampler(temperature), length, new_tokens, seed),
        )
        ways: dict[str, Generate] = dict(zip(columns, (*theirs, *ours), strict=True))
        speeds: dict[str, list[float]] = {column: [] for column in columns}
        texts: dict[str, list[list[int]]] = {}
        with messages.status(f"decoding {kind} at temperature {temperature:g}"):
            for _ in range(repeats):
                for column, way in ways.items():
                    start_s = time.perf_counter()
                    texts[column] = [way(prompt) for prompt in some]
                    seconds = time.perf_counter() - start_s
                    speeds[column].append(sum(map(len, texts[column])) / seconds)
        measured = {column: Series(tuple(samples)) for column, samples in speeds.items()}
        medians = [measured[column].median for column in columns]
        ratio = medians[4] / max(medians[1:3])
        same = len({str(text) for text in texts.values()}) == 1 if temperature == 0 else None
        table.add_row(
            kind,
            f"{temperature:g}",
            *(f"{median:.1f}" for median in medians),
            f"{ratio:.2f}x",
            {None: "", True: "yes", False: "NO"}[same],
        )
        results.append(
            {
                "kind": kind,
                "temperature": temperature,
                "draft": DRAFT,
                "target": TARGET,
                "length": length,
                "new_tokens": new_tokens,
                "prompts": prompt_count,
                "tokens_per_s": {column: each.to_json() for column, each in measured.items()},
                "ratio": round(ratio, 3),
                "same_texts": same,
            }
        )
    print_report(output, "assisted", table, results, seed=seed, note=NOTE)


def _alone(pair: ModelPair, sampler: Sampler, tokens: int, seed: int) -> Generate:
    """The target by itself, with our forward."""
    rule = speculative_rule("coupled", Noise(seed), sampler)

    return lambda prompt: alone(pair.target, prompt, rule, tokens)


def _speculative(
    pair: ModelPair, sampler: Sampler, length: int, tokens: int, seed: int
) -> Generate:
    rule = speculative_rule("coupled", Noise(seed), sampler)
    speculation = Speculation(pair, codec("ids", pair.draft.vocabulary), length=length)

    def generate(prompt: Prompt) -> list[int]:
        blocks = speculation.blocks(prompt, rule, tokens)
        text = [token for block in blocks for token in block.tokens]
        ends = [place for place, token in enumerate(text, start=1) if token in prompt.stops]
        return text[: min([tokens, *ends[:1]])]

    return generate


def _generate(temperature: float, tokens: int, length: int | None, seed: int) -> Generate:
    """transformers: alone without `length`; 0 leaves it to choose its block lengths."""
    target = load_checkpoint(TARGET, "cpu", "auto").model
    draft = load_checkpoint(DRAFT, "cpu", "auto").model if length is not None else None
    models = [model for model in (target, draft) if model is not None]
    if draft is not None and length:
        draft.generation_config.num_assistant_tokens = length
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0.0
    sampling: dict[str, Any] = {"do_sample": temperature > 0}
    if temperature > 0:
        sampling |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}

    def generate(prompt: Prompt) -> list[int]:
        inputs = torch.tensor([prompt.tokens])
        for model in models:  # prose has all of its tokens
            model.generation_config.eos_token_id = list(prompt.stops) or None
        torch.manual_seed(seed)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own use of what it deprecates
            result = target.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=tokens,
                pad_token_id=0,
                assistant_model=draft,
                **sampling,
            )
        new: list[int] = result[0, len(prompt.tokens) :].tolist()
        return new

    return generate
