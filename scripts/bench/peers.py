"""Greedy answers of others' programs to the same prompts, plain and with drafts, without a network.

transformers' `generate` runs the weights dequantised; llama.cpp's server runs the file that we run.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import xllamacpp

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import base_file
from dragonrt.backends.model import LanguageModel
from dragonrt.modes.question import Question
from dragonrt.traces.counts import Counts
from scripts.bench.llama_cpp import model_path
from scripts.bench.reference import transformers_model

LOOKED_UP = 10
"""Tokens that transformers' prompt lookup proposes at once."""
_ROOM = 4096  # tokens of a server's prompt and answer
_DRAFT = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE
_NGRAM = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE


@dataclass(frozen=True, slots=True)
class Generated:
    """An answer and when it came; nothing is counted."""

    tokens: list[int]
    first_s: float
    seconds: float
    counts: Counts = field(default_factory=Counts)


class Peer(Protocol):
    """A program of others, whose first way has no drafts."""

    @property
    def ways(self) -> Mapping[str, Any]:
        """Return what each way is."""

    def answer(self, way: str, tokens: list[int], question: Question) -> Generated:
        """Return the answer to a question's prompt of these tokens."""


class Transformers:
    """A model, and its draft as the assistant."""

    def __init__(self, side: LanguageModel, model: str, draft: str, *, adapted: bool) -> None:
        """Load both; `adapted`: with the adapter for documents."""
        self._stops = side.answer_stops
        self._model = transformers_model(model, adapted=adapted)
        self.ways: dict[str, dict[str, Any]] = {
            "transformers": {},
            "transformers, prompt lookup": {"prompt_lookup_num_tokens": LOOKED_UP},
            "transformers, assisted": {"assistant_model": transformers_model(draft)},
        }

    def answer(self, way: str, tokens: list[int], question: Question) -> Generated:
        ids, clock = torch.tensor([tokens]), _Clock()
        start_s = time.perf_counter()
        made = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=question.max_tokens,
            eos_token_id=list(self._stops),
            pad_token_id=self._stops[0],
            streamer=clock,
            **self.ways[way],
        )
        end_s = time.perf_counter()
        return Generated(made[0, ids.shape[1] :].tolist(), clock.first_s - start_s, end_s - start_s)


class _Clock:
    """A streamer that keeps when the first token came: the prompt comes before it."""

    def __init__(self) -> None:
        self._calls, self.first_s = 0, 0.0

    def put(self, value: torch.Tensor) -> None:
        self._calls += 1
        if self._calls == 2:
            self.first_s = time.perf_counter()

    def end(self) -> None:
        """Do nothing: what `generate` calls at the end."""


class LlamaServer:
    """llama.cpp's server in this process, one for each way, a thread each; no prompt is kept."""

    def __init__(self, side: LanguageModel, model: str, draft: str, *, adapted: bool) -> None:
        """Start the servers; `adapted`: with the adapter for documents."""
        self._side = side
        path = model_path(model) if adapted or model != bundled.SMOLLM2 else base_file()
        self.ways = {
            "llama.cpp's server": _server(path),
            "llama.cpp's server, lookup": _server(path, _NGRAM),
            "llama.cpp's server, draft model": _server(path, _DRAFT, model_path(draft)),
        }

    def answer(self, way: str, tokens: list[int], question: Question) -> Generated:
        """Return an answer with its stop token; the times are the server's own."""
        body = {
            "prompt": tokens,
            "max_tokens": question.max_tokens,
            "temperature": 0,
            "cache_prompt": False,
        }
        made = self.ways[way].handle_completions(body)
        times = made["timings"]
        first_s = times["prompt_ms"] / 1e3
        (choice,) = made["choices"]
        tokens = self._side.encode(choice["text"])
        if choice["finish_reason"] == "stop":
            tokens.append(self._side.answer_stops[0])
        return Generated(tokens, first_s, first_s + times["predicted_ms"] / 1e3)


def _server(path: Path, drafts: Any = None, draft: Path | None = None) -> xllamacpp.Server:
    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.n_parallel = str(path), _ROOM, 1
    options.verbosity, options.port, options.fit_params = 0, 0, False
    for threads in (options.cpuparams, options.cpuparams_batch):
        threads.n_threads = 1
    if drafts is not None:
        options.speculative.types = [drafts]
    if draft is not None:
        options.speculative.draft.mparams.path = str(draft)
    return xllamacpp.Server(options)
