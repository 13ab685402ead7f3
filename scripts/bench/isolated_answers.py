"""Answers over isolated documents, each way, by the functions that the product answers with.

Many questions share the forwards of one model in one process. No message travels: what a pair of
processes would decide is the same text (SPEC 0), and a test compares the two.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from dragonrt.backends.backend import Document, Preemption
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.scheduler import Done, Request, Scheduler
from dragonrt.distributions import codec
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question, Turn
from dragonrt.node.process.local_side import weighing
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Candidate, Coupled, side_weights
from dragonrt.side import Side
from retrieval import Embedder, Hit


@dataclass(frozen=True, slots=True)
class Way:
    """How a question is answered.

    Attributes:
        sides: whose documents are read.
        joined: whether they are read in one prompt, as if they had been sent.
        changed: settings of the question that differ.
    """

    sides: tuple[Side, ...] = ("device", "cloud")
    joined: bool = False
    changed: Mapping[str, Any] = field(default_factory=dict)


WAYS: dict[str, Way] = {
    "device alone": Way(("device",)),
    "cloud alone": Way(("cloud",)),
    "one prompt": Way(joined=True),
    "mixture": Way(),
    "mixture, ranked again every 4 tokens": Way(changed={"reweight_every": 4}),
    "mixture, relevance temperature 0.05": Way(changed={"relevance_temperature": 0.05}),
    "mixture, relevance temperature 1": Way(changed={"relevance_temperature": 1.0}),
}
"""The ways to answer, by name. A way more is a row more of the benchmark."""
PARTED = ("device alone", "cloud alone", "one prompt", "mixture")
"""Those in which a question of several parts is answered part by part, too."""

AT_ONCE = 8
"""Questions that share forwards."""
PIECE = 768
"""Rows times tokens that one question may add to a forward."""

T = TypeVar("T")
Reading = Generator[Callable[[Done[Any], Preemption], Request], Any, T]
"""Yields what makes its next request, and receives the request's result."""
Found = Mapping[Side, Sequence[Hit]]
"""What each side found."""
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
        self, prompt: str, found: Found, ways: Iterable[str] = WAYS
    ) -> Reading[dict[str, list[int]]]:
        """Answer a question from what each side found: tokens by way, without the stop token."""
        usual = replace(self.asked, prompt=prompt)
        readers: dict[tuple[Side, Question], PrefixCache] = {}
        answers: dict[str, list[int]] = {}
        for name in ways:
            way = WAYS[name]
            question, sides = replace(usual, **way.changed), []
            decides = Coupled(Noise(question.seed), question.sampler)
            if way.joined:
                tokens = self.joined([hit for side in way.sides for hit in found[side]])
                document = yield partial(self.model.prefill, tokens)
                sides.append((yield from self._behind(question, [document], [], "device")))
            for side in () if way.joined else way.sides:
                key = side, question
                if key not in readers:
                    made = yield from self.side(question, found[side], side)
                    readers[key] = made
                sides.append(readers[key])
            answers[name] = yield from self._decided(question, sides, decides)
        return answers

    def part_by_part(
        self, parts: Sequence[str], find: Callable[[Question], Found], ways: Iterable[str] = PARTED
    ) -> Reading[dict[str, list[list[int]]]]:
        """Answer each part of a question as `Conversation` does, a turn of its own.

        Return tokens by way and part.
        """
        noise, answers = Noise(self.asked.seed), dict[str, list[list[int]]]()
        for name in ways:
            turns: tuple[Turn, ...] = ()
            answers[name], left = [], self.asked.max_tokens
            for number, part in enumerate(parts):
                seed = noise.seed_of(number)
                asked = replace(self.asked, prompt=part, history=turns, seed=seed, max_tokens=left)
                reading = replace(self, asked=asked).reading(part, find(asked), (name,))
                tokens = (yield from reading)[name]
                turns = (*turns, (part, self.model.decode(tokens).strip()))
                left = max(1, left - len(tokens) - 1)  # the stop token counts, too
                answers[name].append(tokens)
        return answers

    def joined(self, hits: Iterable[Hit]) -> list[int]:
        """Render all chunks, each once and the nearest first, as one document: its tokens."""
        prompt = self.model.prompt
        before, after = prompt.document_text("", _MARK).split(_MARK)
        nearest = sorted(hits, key=lambda hit: -hit.score)
        texts = (prompt.document_text(hit.chunk.title, hit.chunk.text) for hit in nearest)
        each = dict.fromkeys(text.removeprefix(before).removesuffix(after) for text in texts)
        return _document_tokens(self.model, "\n\n".join(each), "")

    def side(self, question: Question, hits: Sequence[Hit], side: Side) -> Reading[PrefixCache]:
        """Read the question behind the chunks of one side."""
        documents = []
        for hit in hits:
            if hit.chunk.digest not in self._documents:
                tokens = _document_tokens(self.model, hit.chunk.text, hit.chunk.title)
                made = yield partial(self.model.prefill, tokens)
                self._documents[hit.chunk.digest] = made
            documents.append(self._documents[hit.chunk.digest])
        reader = yield from self._behind(question, documents, hits, side)
        return reader

    def _behind(
        self, question: Question, documents: Sequence[Document], hits: Sequence[Hit], side: Side
    ) -> Reading[PrefixCache]:
        """Read the question behind one side's documents, as `LocalSide` does."""
        model = self.model
        tokens = model.encode(model.prompt.question_text(question.history, question.prompt))
        capacity = len(tokens) + question.max_tokens
        documents = documents or [model.document_kv(())]
        rows = partial(model.rows, documents, capacity)
        weights = weighing(model, question, hits, self.embedder, side)
        agreement = model.agreement if hits else None
        reader = PrefixCache(rows, tokens, start_hash(question.seed), weights, agreement)
        yield reader.prefill
        return reader

    def _decided(
        self, question: Question, sides: Sequence[PrefixCache], decides: Coupled
    ) -> Reading[list[int]]:
        """Decide an answer token by token: alone by one side's model, by two sides' mixture."""
        code = codec(self.how.codec, self.model.vocabulary)
        stops, line = self.model.answer_stops, TokenPrefix(start_hash(question.seed))

        while len(line) < question.max_tokens:
            step, said = len(line), []
            for reader in sides:
                said += yield partial(reader.request, line.tokens, line.hashes, step)
            drawn = [code.quantize(decides.shape(each.p)).distribution for each in said]
            if len(sides) == 1:
                token = decides.draft("device", step, drawn[0])
            else:
                weights = side_weights(*(each.relevance + each.kept for each in said))
                # Where tokens are raced for, which ones were drafted does not matter.
                device, cloud = (Candidate(0, each) for each in drawn)
                token = decides.target(step, device, cloud, weights)
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
