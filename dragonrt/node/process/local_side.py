"""The model, threads and documents of one process, and how it reads a question (SPEC section 1)."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from dragonrt.backends.backend import Document
from dragonrt.backends.mixture import Relevances, Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.scheduler import Client
from dragonrt.control.scheduler import DecodeProfile
from dragonrt.control.trained import Controller, Verifier, controller, fitting_verifier
from dragonrt.errors import DragonError
from dragonrt.modes.mode import Prepared
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question, Turn
from dragonrt.node.answers.citing import Passage, is_refusal
from dragonrt.node.answers.model_session import ModelSession, PrefillResult
from dragonrt.node.model_thread import JobThread, ModelThread
from dragonrt.node.process.library import Library
from dragonrt.node.process.reindexing import IndexingState
from dragonrt.privacy.disclosure import MARKER
from dragonrt.side import Side
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.file import Recorder
from retrieval import Chunk, Embedder, Hit, RetrievalError
from retrieval.questions import in_context, is_about_asker, missing_share

PINNED = 64  # answers whose chunks are kept, to resume them after the documents have changed
OWN, LACKING = 1.0, 8.0
"""Relevance that a device's document gains for a question with "I", "my", "we" or "our", and that
it loses without the question's names and numbers: a refusal costs the other side about 6."""


class LongQuestionError(DragonError):
    """A question has more tokens (`tokens`) than the model has room for (`room`)."""

    def __init__(self, tokens: int, room: int, model: str) -> None:
        super().__init__(
            f"the question has {tokens} tokens, but {model} has room for {room} after documents "
            "and answer: ask a shorter question or lower --max-tokens"
        )
        self.tokens, self.room = tokens, room


@dataclass(frozen=True, slots=True)
class LocalSide:
    """A side with a real model and index, which retrieves and reads documents for each question.

    `thread` runs the model, `librarian` is the thread of retrieval. `library` has the documents, if
    any. `following` is the state of background indexing, if any. `prefix_cache` counts tokens of
    retrieved documents: "queries" counts all, "hits" the tokens whose KV was stored before.
    """

    side: Side
    model: LanguageModel
    thread: ModelThread
    librarian: JobThread
    library: Library | None
    recorder: Recorder
    profile: DecodeProfile | None = None
    share_sources: bool = True
    timeouts: Timeouts = USUAL
    pinned: dict[Question, list[Hit]] = field(default_factory=dict)
    following: IndexingState | None = None
    prefix_cache: Counter[str] = field(default_factory=Counter)

    @property
    def vocabulary(self) -> int:
        return self.model.vocabulary

    @property
    def marker(self) -> tuple[int, ...]:
        """Return the tokens that the cloud reads in place of a run of tokens withheld from it."""
        return tuple(self.model.encode(MARKER))

    def controller(self, name: str) -> Controller:
        return controller(name, self.model.name)

    def verifier(self, file: str | None, target: str) -> Verifier:
        return fitting_verifier(file, self.model.fingerprint, target)

    async def prepare(
        self, question: Question, *, verifies: bool, late: bool = False, client: Client = ()
    ) -> PrefillResult:
        clock = asyncio.get_running_loop().time
        start_s, exact = clock(), self.model.exact_blocks
        with self.thread.preparing(client):
            hits = await self.librarian.call(lambda: self._find(question))
            documents = await self._documents(hits, client)
            longest = max(document.length for document in documents)
            prompt = await self.librarian.call(lambda: self._prompt(question, longest))
            loaded_s = clock()
            capacity = len(prompt) + question.max_tokens
            embedder = None if self.library is None else self.library.embedder
            cache = PrefixCache(
                partial(self.model.rows, documents, capacity),
                prompt,
                start_hash(question.seed),
                weighing(self.model, question, hits, embedder, self.side),
                self.model.agreement if hits else None,
                # Verifying pays only in one forward, even if a block's last bits differ.
                in_blocks=verifies or exact,
            )
            if not late:
                await self.thread.read(cache.prefill, client)
            found = [(hit.chunk, hit.score) for hit in hits]
            names = list(dict.fromkeys(chunk.source for chunk, _ in found))
            files = [names.index(chunk.source) for chunk, _ in found]
            texts = [self.model.encode(chunk.text) for chunk, _ in found]
            passages = (Passage(c.citation, c.source, score, c.text, c.start) for c, score in found)
            context = ModelSession(self.thread, cache, start_hash(question.seed), client)
            return PrefillResult(
                context=context,
                prepared=Prepared(exact, texts, files, longest + len(prompt), prompt),
                passages=tuple(passages),
                prompt_tokens=len(prompt),
                load_s=loaded_s - start_s,
                prefill_s=clock() - loaded_s,
                passages_hash=_evidence(hits),
                decode=self.model.decode,
                other_values=partial(context.other_values, by=self.model.agreement),
            )

    def _find(self, question: Question) -> list[Hit]:
        """Return the chunks to answer from; a resumed answer keeps its first ones."""
        asked = replace(question, accepted=())
        if question.accepted and asked in self.pinned:
            return self.pinned[asked]
        hits = self._search(question)
        while len(self.pinned) >= PINNED:
            del self.pinned[next(iter(self.pinned))]
        self.pinned[asked] = hits
        return hits

    def _search(self, question: Question) -> list[Hit]:
        if self.library is None:
            return []
        words = sought(question, self.model.prompt.template.refusal)
        try:
            if question.chunk is None:
                limits = question.documents, question.relevance_floor, question.document
                hits = self.library.find(words, *limits)
                self.library.asked.extend(hit.chunk for hit in reversed(hits))
                return hits
            chunks = self.library.chunks_of(question.document)
            return [Hit(chunk, 1.0) for chunk in chunks[question.chunk :][:1]]
        except RetrievalError as error:
            raise DragonError(str(error)) from error

    async def _documents(self, hits: Sequence[Hit], client: Client) -> Sequence[Document]:
        library, model = self.library, self.model
        if library is None or not hits:
            return [model.document_kv(())]
        documents = []
        for chunk in [hit.chunk for hit in hits]:
            kv = await self.librarian.call(partial(library.stored_kv, chunk))
            if kv is None:
                made = await self.thread.read(partial(model.prefill, library.tokens(chunk)), client)
                kv = await self.librarian.call(partial(library.store_kv, chunk, made))
            else:
                self.prefix_cache["hits"] += kv.length
            self.prefix_cache["queries"] += kv.length
            documents.append(kv)
        return documents

    def _prompt(self, asked: Question, longest: int) -> list[int]:
        room = self.model.context_length - longest - asked.max_tokens
        return fitting_prompt(self.model, asked.prompt, asked.history, room, asked.instructions)


def sought(question: Question, refusal: str) -> str:
    """Return what to search for: the earlier turns that the question refers to, then the question.

    Answers that consist of the model's sentence `refusal` (no document has the answer) are dropped.
    """
    turns = [(q, "" if is_refusal(a, refusal) else a) for q, a in question.history]
    return in_context(question.prompt, turns)


def weighing(
    model: LanguageModel,
    question: Question,
    hits: Sequence[Hit],
    embedder: Embedder | None,
    side: Side,
) -> Weighing:
    """Return the relevances that weigh an answer's batch rows, one row for each document in `hits`.

    Without hits, one row reads no document. If a question to a device has "I" or "my", all of its
    documents gain relevance, and lose it for names or numbers of the question that they lack. The
    relevances are computed again as the answer grows, unless `embedder` is None.
    """
    texts = [hit.chunk.text for hit in hits]
    scores = [hit.score for hit in hits] or [0.0]
    added: Relevances = np.zeros(len(scores))
    if hits and side == "device" and is_about_asker(question.prompt):
        lost = [missing_share(question.prompt, _named(hit.chunk)) for hit in hits]
        added = OWN - LACKING * np.array(lost)
    initial = np.array(scores) / question.relevance_temperature + added
    if embedder is None or not hits:
        return Weighing(initial, refusal=model.refusal, doubt=question.doubt)

    def again(tokens: list[int]) -> Relevances:
        text = f"{question.prompt} {model.decode(tokens)}"
        return np.array(embedder.cosines(text, texts)) / question.relevance_temperature + added

    return Weighing(initial, question.reweight_every, again, model.refusal, question.doubt)


def _named(chunk: Chunk) -> str:
    return f"{chunk.source.replace('_', ' ')} {chunk.title} {chunk.text}"


def _evidence(hits: Sequence[Hit]) -> str:
    digest = hashlib.sha256()
    for hit in hits:
        digest.update(f"{hit.chunk.digest} {hit.score:.4f}\n".encode())
    return digest.hexdigest()[:32]


def fitting_prompt(
    model: LanguageModel, question: str, history: Sequence[Turn], room: int, instructions: str = ""
) -> list[int]:
    """Make a prompt of at most `room` tokens with the latest turns, or raise LongQuestionError."""
    for first in range(len(history) + 1):
        text = model.prompt.question_text(history[first:], question, instructions)
        if len(tokens := model.encode(text)) <= room:
            return tokens
    raise LongQuestionError(len(tokens), max(room, 0), model.name)
