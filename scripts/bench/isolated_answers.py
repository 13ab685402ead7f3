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
from dragonrt.modes.experts import Experts
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
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
EXPERTS = "experts"
"""Per token the best single document (SPEC 1.9)."""
WAYS = ("device alone", "cloud alone", JOINED, *MIXTURES, EXPERTS)

AT_ONCE = 8
"""Questions that share forwards."""
PIECE = 768
"""Rows times tokens that one question may add to a forward."""

_SIDES = {
    "device alone": ("device",),
    "cloud alone": ("cloud",),
    **dict.fromkeys((*MIXTURES, EXPERTS), ("device", "cloud")),
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
    agrees: bool = True
    _documents: dict[str, Document] = field(default_factory=dict)

    def reading(
        self, prompt: str, device: Sequence[Hit], cloud: Sequence[Hit], ways: Iterable[str] = WAYS
    ) -> Reading[dict[str, list[int]]]:
        """Answer a question from what each side found: tokens by way, without the stop token."""
        usual = replace(self.asked, prompt=prompt)
        found = {"device": device, "cloud": cloud}
        readers: dict[tuple[str, Question, bool], PrefixCache] = {}
        answers: dict[str, list[int]] = {}
        for way in ways:
            if way == JOINED:
                tokens = self.joined([*device, *cloud])
                document = yield partial(self.model.prefill, tokens)
                alone = yield from self._behind(usual, [document], [])
                rule = Coupled(Noise(usual.seed), usual.sampler)
                answers[way] = yield from self._decided(usual, [alone], rule)
                continue
            question, sides = replace(usual, **MIXTURES.get(way, {})), []
            rule = (Experts if way == EXPERTS else Coupled)(Noise(usual.seed), usual.sampler)
            for side in _SIDES[way]:
                name = side, question, rule.bare
                if name not in readers:
                    readers[name] = yield from self._side(question, found[side], bare=rule.bare)
                sides.append(readers[name])
            answers[way] = yield from self._decided(question, sides, rule)
        return answers

    def joined(self, hits: Iterable[Hit]) -> list[int]:
        """Render all chunks, each once and the nearest first, as one document: its tokens."""
        prompt = self.model.prompt
        before, after = prompt.document_text("", _MARK).split(_MARK)
        nearest = sorted(hits, key=lambda hit: -hit.score)
        texts = (prompt.document_text(hit.chunk.title, hit.chunk.text) for hit in nearest)
        each = dict.fromkeys(text.removeprefix(before).removesuffix(after) for text in texts)
        return _document_tokens(self.model, "\n\n".join(each), "")

    def _side(self, question: Question, hits: Sequence[Hit], *, bare: bool) -> Reading[PrefixCache]:
        documents = []
        for hit in hits:
            if hit.chunk.digest not in self._documents:
                tokens = _document_tokens(self.model, hit.chunk.text, hit.chunk.title)
                made = yield partial(self.model.prefill, tokens)
                self._documents[hit.chunk.digest] = made
            documents.append(self._documents[hit.chunk.digest])
        reader = yield from self._behind(question, documents, hits, bare=bare)
        return reader

    def _behind(
        self,
        question: Question,
        documents: Sequence[Document],
        hits: Sequence[Hit],
        *,
        bare: bool = False,
    ) -> Reading[PrefixCache]:
        """Read the question behind one side's documents, as `LocalSide` does."""
        model = self.model
        tokens = model.encode(model.prompt.question_text((), question.prompt))
        capacity = len(tokens) + question.max_tokens
        documents = documents or [model.document_kv(())]
        documents = [*documents, *[model.document_kv(())] * bare]
        rows = partial(model.rows, documents, capacity)
        weights = weighing(model, question, hits, self.embedder, bare=bare)
        agreement = model.agreement if hits and self.agrees else None
        reader = PrefixCache(rows, tokens, start_hash(question.seed), weights, agreement)
        yield reader.prefill
        return reader

    def _decided(
        self, question: Question, sides: Sequence[PrefixCache], rule: Coupled
    ) -> Reading[list[int]]:
        """Decide an answer token by token: alone by one side's model, by two sides' mixture."""
        code = codec(self.how.codec_for(question.sampler), self.model.vocabulary)
        stops, line = self.model.answer_stops, TokenPrefix(start_hash(question.seed))

        while len(line) < question.max_tokens:
            step, said = len(line), []
            for reader in sides:
                said += yield partial(reader.request, line.tokens, line.hashes, step)
            seen = [rule.seen(each) for each in said]
            drawn = [code.quantize(p).distribution for p, *_ in seen]
            if len(sides) == 1:
                token = rule.draft("device", step, drawn[0])
            else:
                weights = side_weights(*(relevance + kept for _, relevance, kept in seen))
                # Where tokens are raced for, which ones were drafted does not matter.
                device, cloud = (Candidate(0, each) for each in drawn)
                token = rule.target(step, device, cloud, weights)
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
