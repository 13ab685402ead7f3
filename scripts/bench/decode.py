"""How long forwards take: a backend's, a bare loop's over the same library, and transformers'."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dragonrt import bundled
from dragonrt.backends.backend import Preemption, RowLogits
from dragonrt.backends.llama_cpp.library import LlamaModel, load_library
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.scheduler import Done, Request, run_alone
from dragonrt.cli.options import option
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from scripts.bench.reference import BareLoop, model_path, transformers_model
from scripts.lab.harness import benchmark, series
from scripts.lab.intervals import Row

FORWARDS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 4))
"""Rows, and tokens in each: one as in drafting, several as in verification."""
CONTEXT, DOCUMENT = 150, 100
"""Tokens in each row before the forward; tokens of a document that is read by itself."""

Tokens = Sequence[int]
Step = Callable[[], int]
"""Appends the same tokens, each time anew; returns the likeliest after them."""
Forward = tuple[Tokens, Tokens, int]
"""A context in so many rows, and the tokens that are appended: a prompt if there is no context."""
Program = Callable[[Tokens, Tokens, int], Step]
"""Reads the context of a forward; the step is the forward itself."""


@benchmark(
    {"threads": "{threads}", "forward": "{forward}"}
    | {
        name: f"{{{name}[cpu_ms][median]:.1f}} ({{{name}[ms][median]:.1f}})"
        for name in ("dragonrt", "bare loop", "transformers")
    }
    | {"ratio": "{ratio[cpu_ms][median]:.3f} ({ratio[ms][median]:.3f})"},
    note=f"Milliseconds of CPU (and by the clock) of rows x tokens behind {CONTEXT} tokens; in the "
    "last line a document is read. Medians of interleaved repeats. dragonrt: rows are mixed as in "
    "an answer. bare loop: over the same library and file; logits are read. transformers: in "
    "bfloat16. ratio: of dragonrt over the bare loop, repeat by repeat.",
)
def decode(
    *,
    model: Annotated[str, option("Name or GGUF file.", default="smollm2")] = bundled.SMOLLM2,
    threads: tuple[int, ...] = (1, 2),
    repeats: Annotated[int, option("Measurements of each forward.", default="40", low=1)] = 40,
    reference: Annotated[bool, option("Measure transformers, too, which takes long.")] = False,
    llama_library: Annotated[Path | None, option("As `dragonrt device`'s.")] = None,
) -> Iterator[Row]:
    """Yield the times of each forward by each program."""
    bare = LlamaModel(load_library(llama_library), model_path(model))
    for count in threads:
        side = SideSettings("device", model, threads=count, llama_library=llama_library)
        ours = load_model(side)
        programs: dict[str, Program] = {
            "dragonrt": partial(by_backend, ours),
            "bare loop": partial(_bare_loop, bare, count),
        }
        if reference:
            programs["transformers"] = partial(by_transformers, transformers_model(model), count)
        articles = sorted(bundled.documents("cloud").glob("*.md"))
        text = [token for each in articles for token in ours.encode(each.read_text("utf-8"))]
        forwards = [(text[:CONTEXT], text[CONTEXT : CONTEXT + n], rows) for rows, n in FORWARDS]
        for forward in [*forwards, ([], text[:DOCUMENT], 1)]:
            row: Row = {"model": model, "library": bare.library.name, "threads": count}
            yield row | {"transformers": None} | timed(programs, forward, repeats)


def timed(programs: Mapping[str, Program], forward: Forward, repeats: int) -> Row:
    """Return what each program says after a forward, and its times; `ratio` is of the first two."""
    context, tokens, rows = forward
    steps = {name: begin(context, tokens, rows) for name, begin in programs.items()}
    said = {name: step() for name, step in steps.items()}  # warms up
    times: dict[str, list[Any]] = {name: [] for name in steps}
    for _, (name, step) in product(range(repeats), steps.items()):
        start = _clocks()
        step()
        times[name].append(_clocks() - start)
    first, second, *_ = times.values()
    times["ratio"] = np.divide(first, second).tolist()
    row: Row = {"forward": f"{rows} x {len(tokens)}", "said": said}
    for name, found in times.items():
        cpu_ms, ms = np.transpose(found).tolist()
        row[name] = {"cpu_ms": series(cpu_ms), "ms": series(ms)}
    return row


def _clocks() -> Any:
    return 1000 * np.array((time.process_time(), time.perf_counter()))


def by_backend(model: LanguageModel, context: Tokens, tokens: Tokens, rows: int) -> Step:
    """Return the step by a model's backend, which mixes the rows after each token."""
    row_set = model.rows([model.document_kv(context)] * rows, len(tokens))
    prompt = 0 if context else len(tokens)
    piece = model.backend.info.prompt_piece  # of documents
    log_weights = np.full(rows, -np.log(rows), np.float32)

    def request(done: Done[list[RowLogits]], preemption: Preemption) -> Request:
        return Request(row_set, tokens, done, preemption, prompt, piece, every=prompt)

    def step() -> int:
        row_set.truncate(0)
        return int([each.mixed(log_weights) for each in run_alone(request)][-1].argmax())

    return step


def _bare_loop(model: LlamaModel, threads: int, context: Tokens, tokens: Tokens, rows: int) -> Step:
    loop = BareLoop(model, threads, rows, len(context) + len(tokens))
    if context:
        loop.extend(context, 0, every=False)
    return partial(loop.extend, tokens, len(context), every=bool(context))


def by_transformers(model: Any, threads: int, context: Tokens, tokens: Tokens, rows: int) -> Step:
    """Return the step by transformers itself, on the model's device."""
    import torch
    from transformers import DynamicCache

    torch.set_num_threads(threads)
    cache = DynamicCache(config=model.config)

    @torch.inference_mode()
    def step(tokens: Tokens = tokens, length: int = len(context)) -> int:
        cache.crop(length - cache.get_seq_length())  # a negative number: so many are removed
        ids, wanted = torch.tensor([list(tokens)] * rows), len(tokens) if context else 1
        ids = ids.to(model.device)
        said = model(ids, past_key_values=cache, logits_to_keep=wanted)
        return int(said.logits[0, -1].argmax())

    if context:
        step(context, 0)
    return step
