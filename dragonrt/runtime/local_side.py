"""What one process answers with: a model, its worker thread, its documents (SPEC section 1)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dragonrt.distributions.codec import codec
from dragonrt.errors import DragonError
from dragonrt.language.model import LanguageModel
from dragonrt.language.reader import Reader, Relevances, Weighing
from dragonrt.runtime.draft import start_hash
from dragonrt.runtime.drafter import Drafter
from dragonrt.runtime.library import Library
from dragonrt.runtime.lookup import Lookup
from dragonrt.runtime.model_drafter import ModelDrafter
from dragonrt.runtime.model_predictor import ModelPredictor
from dragonrt.runtime.outcome import Turn
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.predictor import Predictor
from dragonrt.runtime.preparing import Grounding, Prepared
from dragonrt.runtime.profiler import DecodeProfile
from dragonrt.runtime.trace import Trace
from dragonrt.runtime.worker import ModelWorker
from dragonrt.side import Side
from dragonrt.wire.messages import Source
from retrieval import Hit, RetrievalError, in_context

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LocalSide:
    """Implements Preparer on a real model and a real index.

    `worker` runs the model, `librarian` the retrieval, so that neither waits for the other.
    `library` may be None: the side then answers without documents. `profile` is the offline
    decode profile of the model on this machine. Without `share_sources` the side names none of
    the documents it used to the other side.
    """

    side: Side
    model: LanguageModel
    worker: ModelWorker
    librarian: ModelWorker
    library: Library | None
    trace: Trace
    profile: DecodeProfile | None = None
    share_sources: bool = True

    @property
    def vocabulary(self) -> int:
        return self.model.vocabulary

    async def prepare(
        self, question: str, history: Sequence[Turn], plan: Plan
    ) -> Prepared[Drafter]:
        hits, prepared = await self._read(
            question, history, plan, in_blocks=self.model.exact_blocks
        )
        drafter = ModelDrafter(
            self.side,
            self.worker,
            prepared.model,
            Lookup([self.model.encode(hit.chunk.text) for hit in hits]),
            plan,
            codec(plan.codec, self.vocabulary),
        )
        return prepared.with_model(drafter)

    async def prepare_predictor(
        self, question: str, history: Sequence[Turn], plan: Grounding
    ) -> Prepared[Predictor]:
        # Verifying is worth its while in one forward only, even where a block has other last bits.
        _, prepared = await self._read(question, history, plan, in_blocks=True)
        return prepared.with_model(ModelPredictor(self.worker, prepared.model))

    async def off_loop(self, job: Callable[[], T]) -> T:
        return await asyncio.to_thread(job)

    async def _read(
        self, question: str, history: Sequence[Turn], plan: Grounding, *, in_blocks: bool
    ) -> tuple[list[Hit], Prepared[Reader]]:
        """Find the documents and read the question after them."""
        clock = asyncio.get_running_loop().time
        start_s = clock()
        sought = in_context(question, [asked for asked, _ in history])
        hits = await self.librarian.run(lambda: self._find(sought, plan.documents))
        found_s = clock()
        reader, prompt_tokens = await self.worker.run(
            lambda: self._prefill(question, history, plan, hits, in_blocks=in_blocks)
        )
        return hits, Prepared(
            model=reader,
            sources=tuple(Source(hit.chunk.citation, hit.chunk.source, hit.score) for hit in hits),
            prompt_tokens=prompt_tokens,
            load_s=found_s - start_s,
            prefill_s=clock() - found_s,
        )

    def _find(self, question: str, k: int) -> list[Hit]:
        if self.library is None:
            return []
        try:
            return self.library.find(question, k)
        except RetrievalError as error:
            raise DragonError(str(error)) from error

    def _prefill(
        self,
        question: str,
        history: Sequence[Turn],
        plan: Grounding,
        hits: list[Hit],
        *,
        in_blocks: bool,
    ) -> tuple[Reader, int]:
        """Load the documents' KV and read the question once, on all rows at the same time.

        Returns the question's length, too.
        """
        model, library = self.model, self.library
        if library is not None and hits:
            documents = [library.document_kv(model, hit.chunk) for hit in hits]
        else:
            documents = [model.document_kv(())]
        longest = max(document.length for document in documents)
        room = model.context_length - longest - plan.max_tokens
        tokens = fitting_prompt(model, question, history, room)
        rows = model.sequence(documents, capacity=len(tokens) + plan.max_tokens)
        weighing = self._weighing(question, plan, hits)
        start = start_hash(plan.seed)
        return Reader.behind(rows, tokens, start, weighing, in_blocks=in_blocks), len(tokens)

    def _weighing(self, question: str, plan: Grounding, hits: list[Hit]) -> Weighing:
        """Relevances from the scores; a side without documents counts as one of score 0."""
        library = self.library
        scores = np.array([hit.score for hit in hits] or [0.0])
        initial = scores / plan.relevance_temperature
        if library is None or not hits:
            return Weighing(initial)
        chunks = [hit.chunk for hit in hits]

        def again(tokens: list[int]) -> Relevances:
            text = f"{question} {self.model.decode(tokens)}"
            return np.array(library.score(text, chunks)) / plan.relevance_temperature

        return Weighing(initial, plan.reweight_every, again)


def fitting_prompt(
    model: LanguageModel, question: str, history: Sequence[Turn], room: int
) -> list[int]:
    """The tokens of the question after as many of the latest turns as fit into `room` tokens."""
    turns = list(history)
    while True:
        tokens = model.encode(model.prompt.question_text(turns, question))
        if len(tokens) <= room:
            return tokens
        if not turns:
            raise DragonError(
                f"the question takes {len(tokens)} tokens, but {model.name} has room for "
                f"{max(room, 0)} beside its documents and the answer: ask a shorter question or "
                "lower --max-tokens"
            )
        turns = turns[1:]
