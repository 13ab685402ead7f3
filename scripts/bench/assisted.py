"""The greedy answers of transformers' `generate`: plain, with prompt lookup, with an assistant."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from dragonrt.backends.model import LanguageModel
from dragonrt.modes.question import Question
from dragonrt.node.process.library import Library
from dragonrt.traces.counts import Counts
from scripts.bench.reference import transformers_model

LOOKED_UP = 10
"""Tokens that prompt lookup proposes at once."""


@dataclass(frozen=True, slots=True)
class Generated:
    """An answer and when it came; nothing is counted."""

    tokens: list[int]
    first_s: float
    seconds: float
    counts: Counts = field(default_factory=Counts)


class Assisted:
    """A model, and its draft as the assistant, in this process and without a network."""

    def __init__(
        self, side: LanguageModel, library: Library | None, model: str, draft: str
    ) -> None:
        """Load both, dequantised; the adapter for documents is merged where there are some.

        `side` and `library` make the prompts.
        """
        self._side, self._library = side, library
        self._model = transformers_model(model, adapted=library is not None)
        self.ways: dict[str, dict[str, Any]] = {
            "transformers": {},
            "transformers, prompt lookup": {"prompt_lookup_num_tokens": LOOKED_UP},
            "transformers, assisted": {"assistant_model": transformers_model(draft)},
        }

    def answer(self, way: str, question: Question) -> Generated:
        """Return the answer to a question behind what is found for it, with its stop token."""
        tokens, side, stops = [], self._side, self._side.answer_stops
        if self._library is not None:
            for hit in self._library.find(question.prompt, question.documents):
                tokens += self._library.tokens(hit.chunk)
        tokens += side.encode(side.prompt.question_text((), question.prompt))
        ids, clock = torch.tensor([tokens]), _Clock()
        start_s = time.perf_counter()
        made = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=question.max_tokens,
            eos_token_id=list(stops),
            pad_token_id=stops[0],
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
