"""Answers over isolated documents, each way, by the functions that the product answers with.

Many questions share the forwards of one model in one process. No message travels: what a pair of
processes would decide is the same text (SPEC 0), and a test compares the two.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from dragonrt.backends.backend import Document, Preemption
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.scheduler import Done, Request, Scheduler
from dragonrt.distributions import codec
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question, Turn
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.local_side import weighing
from dragonrt.sampling.aggregation import Candidate, Coupled, side_weights
from dragonrt.sampling.noise import Noise
from retrieval import Embedder, Hit

MIXTURES: dict[str, dict[str, Any]] = {
    "mixture": {},
    "mixture, ranked again every 4 tokens": {"reweight_every": 4},
    "mixture, relevance temperature 0.01": {"relevance_temperature": 0.01},
    "mixture, relevance temperature 0.25": {"relevance_temperature": 0.25},
}
"""Ways to weigh both sides' documents: what each changes of a question."""
JOINED = "one prompt"
"""It holds what both sides found: what sending the documents would give."""
WAYS = ("device alone", "cloud alone", JOINED, *MIXTURES)

AT_ONCE = 8
"""Questions that share forwards."""
PIECE = 768
"""Rows times tokens that one question may add to a forward."""

_SIDES = {
    "device alone": ("device",),
    "cloud alone": ("cloud",),
    **dict.fromkeys(MIXTURES, ("device", "cloud")),
}

T = TypeVar("T")
Reading = Generator[Callable[[Done[Any], Preemption], Request], Any, T]
"""Yields what makes its next request, and receives the request's result."""
_MARK = "\u241e"


@dataclass(frozen=True, slots=True)
class IsolatedAnswers:
    """Answers one model gives to questions asked as `asked` says, decided as `how` says."""

    model: LanguageModel
    asked: Question
    embedder: Embedder
    how: DragonSettings = field(default_factory=DragonSettings)
    _documents: dict[str, Document] = field(default_factory=dict)

    def reading(
        self, prompt: str, device: Sequence[Hit], cloud: Sequence[Hit], ways: Iterable[str] = WAYS
    ) -> Reading[dict[str, list[int]]]:
        """Answer a question from what each side found: tokens by way, without the stop token."""
        usual = replace(self.asked, prompt=prompt)
        found = {"device": device, "cloud": cloud}
        readers: dict[tuple[str, Question], PrefixCache] = {}
        answers: dict[str, list[int]] = {}
        for way in ways:
            if way == JOINED:
                tokens = self.joined([*device, *cloud])
                document = yield partial(self.model.prefill, tokens)
                alone = yield from self._behind(usual, [document], [])
                answers[way] = yield from self._decided(usual, [alone])
                continue
            question, sides = replace(usual, **MIXTURES.get(way, {})), []
            for side in _SIDES[way]:
                if (side, question) not in readers:
                    readers[side, question] = yield from self._side(question, found[side])
                sides.append(readers[side, question])
            answers[way] = yield from self._decided(question, sides)
        return answers

    def in_turn(
        self, parts: Sequence[str], find: Callable[[Question], Sequence[Sequence[Hit]]]
    ) -> Reading[tuple[Turn, ...]]:
        """Answer a question's parts by the mixture, as `Conversation` does: the turns.

        `find` returns each side's chunks.
        """
        turns: tuple[Turn, ...] = ()
        noise, left = Noise(self.asked.seed), self.asked.max_tokens
        for number, part in enumerate(parts):
            seed = noise.seed_of(number)
            question = replace(self.asked, prompt=part, history=turns, seed=seed, max_tokens=left)
            sides = []
            for hits in find(question):
                side = yield from self._side(question, hits)
                sides.append(side)
            tokens = yield from self._decided(question, sides)
            turns = (*turns, (part, self.model.decode(tokens).strip()))
            left = max(1, left - len(tokens) - 1)  # the stop token counts, too
        return turns

    def joined(self, hits: Iterable[Hit]) -> list[int]:
        """Render all chunks, each once and the nearest first, as one document: its tokens."""
        prompt = self.model.prompt
        before, after = prompt.document_text("", _MARK).split(_MARK)
        nearest = sorted(hits, key=lambda hit: -hit.score)
        texts = (prompt.document_text(hit.chunk.title, hit.chunk.text) for hit in nearest)
        each = dict.fromkeys(text.removeprefix(before).removesuffix(after) for text in texts)
        return _document_tokens(self.model, "\n\n".join(each), "")

    def _side(self, question: Question, hits: Sequence[Hit]) -> Reading[PrefixCache]:
        documents = []
        for hit in hits:
            if hit.chunk.digest not in self._documents:
                tokens = _document_tokens(self.model, hit.chunk.text, hit.chunk.title)
                made = yield partial(self.model.prefill, tokens)
                self._documents[hit.chunk.digest] = made
            documents.append(self._documents[hit.chunk.digest])
        reader = yield from self._behind(question, documents, hits)
        return reader

    def _behind(
        self, question: Question, documents: Sequence[Document], hits: Sequence[Hit]
    ) -> Reading[PrefixCache]:
        """Read the question behind one side's documents, as `LocalSide` does."""
        model = self.model
        tokens = model.encode(model.prompt.question_text(question.history, question.prompt))
        capacity = len(tokens) + question.max_tokens
        rows = partial(model.rows, documents or [model.document_kv(())], capacity)
        weights = weighing(model, question, hits, self.embedder)
        reader = PrefixCache(rows, tokens, start_hash(question.seed), weights)
        yield reader.prefill
        return reader

    def _decided(self, question: Question, sides: Sequence[PrefixCache]) -> Reading[list[int]]:
        """Decide an answer token by token: alone by one side's model, by two sides' mixture."""
        code = codec(self.how.codec_for(question.sampler), self.model.vocabulary)
        rule = Coupled(Noise(question.seed), question.sampler)
        stops, line = self.model.answer_stops, TokenPrefix(start_hash(question.seed))

        while len(line) < question.max_tokens:
            step, said = len(line), []
            for reader in sides:
                said += yield partial(reader.request, line.tokens, line.hashes, step)
            if len(sides) == 1:
                token = int(said[0].p.argmax())
            else:
                p, q = (code.quantize(rule.shape(each.p)).distribution for each in said)
                weights = side_weights(said[0].relevance, said[1].relevance)
                # Where tokens are raced for, which ones were drafted does not matter.
                token = rule.target(step, Candidate(0, p), Candidate(0, q), weights)
            if token in stops:
                break
            line.append(token)
        return line.tokens


def in_shared_forwards(
    model: LanguageModel, readings: Iterable[Reading[T]], each: Callable[[], None] = lambda: None
) -> list[T]:
    """Return what the readings come to, in their order; `each` is called after every one.

    Raises what one of their requests raises.
    """
    scheduler, backend = Scheduler(model.backend.info), model.backend
    results: dict[int, T] = {}

    def go_on(number: int, reading: Reading[T], found: Any) -> None:
        if isinstance(found, Exception):
            raise found
        try:
            make = reading.send(found)
        except StopIteration as stop:
            results[number] = stop.value
            each()
        else:
            scheduler.add(make(partial(go_on, number, reading), Preemption()))

    waiting = enumerate(readings)
    while True:
        for number, reading in islice(waiting, AT_ONCE - len(scheduler.requests)):
            go_on(number, reading, None)
        if not scheduler.requests:
            return [results[number] for number in sorted(results)]
        batch = scheduler.schedule(PIECE)
        scheduler.update(batch, backend.forward(batch.feeds))


def _document_tokens(model: LanguageModel, text: str, title: str) -> list[int]:
    tokens = model.encode(model.prompt.document_text(title, text))
    return tokens[: model.context_length // 2]
