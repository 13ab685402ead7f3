"""How fast a model decodes and reads: `Sequence.extend` beside transformers and llama.cpp."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import MADE
from dragonrt.backends.model import LanguageModel
from dragonrt.cli.options import option
from dragonrt.node.process import load_model
from dragonrt.node.side_settings import SideSettings
from scripts.bench import llama_cpp
from scripts.bench.harness import benchmark, series
from scripts.bench.reference import transformers_model
from scripts.papers.intervals import Row

MODELS = (bundled.DEFAULT_MODEL,)
BLOCK = 4
"""Tokens of one row that a forward reads, as when drafts are verified."""

Step = Callable[[Sequence[int]], int]
"""Appends tokens to every row; returns the first row's likeliest one after the last."""
Program = Callable[[list[int], int], tuple[int, Step]]
"""Reads a prompt in so many rows; returns the likeliest token after it, and what goes on."""
Times = NDArray[np.float64]
"""Milliseconds of this process's CPU and of the clock [..., 2]."""


@benchmark(
    {"model": "{model}", "type": "{dtype}", "threads": "{threads}", "forward": "{forward}"}
    | {
        name: f"{{{name}[cpu_ms][median]:.1f}} ({{{name}[ms][median]:.1f}})"
        for name in ("dragonrt", "bare", "transformers")
    }
    | {"ratio": "{ratio:.2f}"},
    note="Milliseconds of CPU (and by the clock) of a forward of rows x tokens, in the last line "
    "that of the prompt. Medians of interleaved repeats. bare: a loop over the same library and "
    "file; ratio: dragonrt over it, by the clock. transformers (--reference): in bfloat16 or "
    "float32, one thread.",
)
def decode(
    *,
    model: Annotated[
        tuple[str, ...],
        option("Name, GGUF file, directory or hub id.", default=", ".join(MODELS)),
    ] = MODELS,
    rows: tuple[int, ...] = (1, 2, 4, 8),
    prompt_tokens: int = 100,
    new_tokens: int = 32,
    repeats: int = 5,
    threads: tuple[int, ...] = (1, 2),
    reference: bool = False,
    llama_library: Path | None = None,
) -> Iterator[Row]:
    """Yield the time of a forward of each program, of every model: rows, a block, the prompt."""
    for name, count in product(map(bundled.default_model, model), threads):
        side = SideSettings("device", name, "cpu", threads=count, llama_library=llama_library)
        ours = load_model(side)
        programs = {"dragonrt": _dragonrt(ours)}
        tokens_of_row = prompt_tokens + BLOCK * new_tokens
        if (file := _file(name)).is_file():
            bare = llama_cpp.LlamaCpp(file, max(rows), tokens_of_row, count, llama_library)
            programs["bare"] = _bare(bare)
        if reference:
            programs["transformers"] = _transformers(transformers_model(name))
        articles = sorted(bundled.documents("cloud").glob("*.md"))
        texts = (ours.encode(path.read_text(encoding="utf-8")) for path in articles)
        prompt = [token for text in texts for token in text][:prompt_tokens]
        for size, block in [*((size, 1) for size in rows), (1, BLOCK)]:
            times: dict[str, list[Times]] = {program: [] for program in programs}
            tokens: dict[str, list[int]] = {}
            for _, (program, start) in product(range(repeats), programs.items()):
                tokens[program], found = _run(start, prompt, size, block, new_tokens)
                times[program].append(found)
            about = {"model": name, "dtype": ours.dtype, "threads": count}
            about["same_tokens"] = {
                program: sum(a == b for a, b in zip(tokens["dragonrt"], found, strict=True))
                for program, found in tokens.items()
            }
            yield about | {"forward": f"{size} x {block}"} | _medians(times, 1)
        yield about | {"forward": f"1 x {len(prompt)}"} | _medians(times, 0)


def _run(
    start: Program, prompt: list[int], rows: int, block: int, new: int
) -> tuple[list[int], Times]:
    """Return the tokens, and the times of reading the prompt and, the median, of a forward."""
    stamps = [_clocks()]
    token, step = start(prompt, rows)
    tokens, stamps = [token], [*stamps, _clocks()]
    while len(tokens) < new:
        tokens.append(step(tokens[-1:] * block))
        stamps.append(_clocks())
    read, *steps = np.diff(stamps, axis=0)
    return tokens, np.array([read, np.median(steps, axis=0)])


def _clocks() -> Times:
    return 1000 * np.array((time.process_time(), time.perf_counter()))


def _medians(times: dict[str, list[Times]], part: int) -> Row:
    """Return the repeats' times of reading (0) or of a forward (1), of every program."""
    rows: Row = {"bare": None, "transformers": None, "ratio": None}
    for program, found in times.items():
        cpu_ms, ms = (series([each[part][clock] for each in found]) for clock in (0, 1))
        rows[program] = {"cpu_ms": cpu_ms, "ms": ms}
    if rows["bare"] is not None:
        rows["ratio"] = rows["dragonrt"]["ms"]["median"] / rows["bare"]["ms"]["median"]
    return rows


def _file(name: str) -> Path:
    """Return the file of a bundled or made model, else the name as a path."""
    if name in MADE:
        return MADE[name]()
    return bundled.model_path(name) if name in bundled.models() else Path(name)


def _dragonrt(model: LanguageModel) -> Program:
    every = np.arange(model.vocabulary)

    def start(prompt: list[int], rows: int) -> tuple[int, Step]:
        sequence = model.rows([model.document_kv(())] * rows, 2 * len(prompt))
        first = sequence.extend(prompt, hidden=False)

        def step(tokens: Sequence[int]) -> int:
            return int(sequence.extend_all(tokens, hidden=False)[-1].at(every)[0].argmax())

        return int(first.at(every)[0].argmax()), step

    return start


def _transformers(model: Any) -> Program:
    def start(prompt: list[int], rows: int) -> tuple[int, Step]:
        cache = DynamicCache(config=model.config)

        @torch.inference_mode()
        def step(tokens: Sequence[int], wanted: int = 0) -> int:
            ids = torch.tensor([list(tokens)] * rows)
            said = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=wanted)
            return int(said.logits[0, -1].argmax())

        return step(prompt, 1), step

    return start


def _bare(model: llama_cpp.LlamaCpp) -> Program:
    def start(prompt: list[int], rows: int) -> tuple[int, Step]:
        model.clear()
        return model.extend(prompt, rows, every=False), lambda tokens: model.extend(tokens, rows)

    return start
