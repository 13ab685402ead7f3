"""Many answers on one engine: nobody waits for others' length, and nothing is left behind."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from dragonrt.backends.sequence import PIECE, Reading, Task, advance
from dragonrt.node.engine import ALONE, Engine, ModelSession
from transformers import LlamaConfig, LlamaForCausalLM

from dragonrt.backends import sequence as batches
from dragonrt.backends.backend import Feed
from dragonrt.backends.kv_pool import KvPool
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.checkpoint import Checkpoint, backend_of, load_checkpoint
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.modes.mode import Prediction, Span, Work
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.node.backend_session import ForwardResult, PrefillResult
from dragonrt.node.job_thread import JobThread
from dragonrt.node.library import Library
from dragonrt.node.local_side import LocalSide
from dragonrt.traces.file import Recorder
from dragonrt.wire.reasons import BusyError
from retrieval import Chunk, Embedder, Hit

LONG = 3500


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=4096,
    )
    tokenizer = load_checkpoint("dragon-draft", "cpu", "float32").tokenizer
    return LanguageModel(
        "tiny", backend_of(Checkpoint(LlamaForCausalLM(config), tokenizer, "tiny"))
    )


@dataclass
class Forwards:
    """What every forward computed, as it begins: rows times tokens of each part."""

    parts: list[list[int]] = field(default_factory=list)

    def advance(self, feeds: dict[Task, Feed]) -> None:
        self.parts.append([task.part for task in feeds])
        advance(feeds)


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> Forwards:
    counted = Forwards()
    monkeypatch.setattr(batches, "advance", counted.advance)
    return counted


class CountedEngine(Engine):
    """Counts how many forwards begin while a job waits for the thread, and within a reading."""

    def __init__(self, heads: JobThread, forwards: Forwards) -> None:
        super().__init__(heads)
        self.before: list[int] = []
        self.within: list[int] = []
        self._forwards = forwards.parts

    def submit(self, job: Callable[[], None]) -> None:
        since: list[int] = []

        def counted() -> None:
            self.before.append(len(self._forwards) - since[0] if since else 0)
            job()

        super().submit(counted)
        since.append(len(self._forwards))

    def add(self, reading: Reading[Any], done: Callable[[Any], None]) -> None:
        began = len(self._forwards)

        def end(result: object) -> None:
            self.within.append(len(self._forwards) - began)
            done(result)

        super().add(reading, end)


@asynccontextmanager
async def running(forwards: Forwards | None = None) -> AsyncIterator[CountedEngine]:
    async with (
        JobThread("heads") as heads,
        CountedEngine(heads, forwards or Forwards()) as engine,
    ):
        yield engine


def nothing(said: Sequence[Prediction]) -> None:
    """A head that computes nothing."""


async def asked(context: ModelSession, work: Work) -> ForwardResult:
    done: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
    context.start(work, done.set_result)
    return await done


async def prepared(engine: Engine, model: LanguageModel, tokens: Sequence[int]) -> ModelSession:
    rows = model.rows([model.document_kv(())] * 2, len(tokens) + 64)
    reader = await engine.read(lambda: Reader.reading_prompt(rows, tokens, start_hash(1)))
    return ModelSession(engine, reader)


@pytest.mark.slow
@pytest.mark.parametrize("length", [40, LONG])
async def test_a_question_that_is_read_delays_no_token_by_more_than_two_forwards(
    model: LanguageModel, forwards: Forwards, length: int
) -> None:
    """A token waits for the forward under way at most; the next one is its own."""
    async with running(forwards) as engine:
        answers = [await prepared(engine, model, [5, 6, number]) for number in range(7, 11)]
        forwards.parts.clear()
        engine.before.clear()
        engine.within.clear()
        question = asyncio.ensure_future(prepared(engine, model, [9] * length))
        waiting: list[tuple[int, int, int]] = []

        async def answer(context: ModelSession) -> None:
            line = TokenPrefix(start_hash(1), [])
            while not question.done() or len(line) < 3:
                work = Work(nothing, Span.of(line, len(line), len(line)))
                assert (await asked(context, work)).error is None
                queued = engine._jobs.qsize() + len(engine._batch)
                waiting.append((queued, engine.answers, engine._preparing))
                line.append(7 + len(line))
                if len(line) > 50:
                    line.cut(1)

        await asyncio.gather(*map(answer, answers))
        for context in (*answers, await question):
            context.close()
    *tokens, of_the_question = sorted(engine.within)
    assert -(-2 * length // (4 * 8)) <= of_the_question <= -(-2 * length // PIECE)
    assert len(tokens) > 10
    assert max(tokens) == 1
    assert max(engine.before) <= 1
    assert all(max(each) <= max(PIECE, 4 * (sum(each) - max(each))) for each in forwards.parts)
    assert all(queued <= 2 * answers + preparing for queued, answers, preparing in waiting)


async def test_a_question_that_nobody_waits_for_is_read_in_large_pieces(
    model: LanguageModel, forwards: Forwards
) -> None:
    async with running(forwards) as engine:
        first = await prepared(engine, model, [9] * 300)
        assert list(map(max, forwards.parts)) == [ALONE, ALONE, 600 - 2 * ALONE]
        forwards.parts.clear()
        second = await prepared(engine, model, [9] * 30)  # the first may want a token any time
        assert max(map(max, forwards.parts)) == PIECE
        first.close()
        first.close()
        assert engine.answers == 1
        forwards.parts.clear()
        line = TokenPrefix(start_hash(1), [5] * 60)
        assert (await asked(second, Work(nothing, Span.of(line, 0, 60)))).error is None
        assert max(map(max, forwards.parts)) > PIECE  # its own block, and nobody else's
        second.close()
        assert engine.answers == 0


async def test_what_is_read_idly_makes_way_and_is_read_when_no_answer_is_open(
    model: LanguageModel, forwards: Forwards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question stops it within its forward, and it has none as long as the answer is open."""
    began, go_on = threading.Event(), threading.Event()

    def held(feeds: dict[Task, Feed]) -> None:
        began.set()
        assert go_on.wait(60)
        forwards.advance(feeds)

    monkeypatch.setattr(batches, "advance", held)
    tokens = [9] * 300
    async with running(forwards) as engine:
        reading = partial(model.reading_document, tokens)
        idle = asyncio.ensure_future(engine.read_idle(reading))
        await asyncio.to_thread(began.wait, 60)
        question = asyncio.ensure_future(prepared(engine, model, [5, 6, 7]))
        await asyncio.sleep(0)  # it has been asked for
        go_on.set()
        context = await question
        assert forwards.parts == [[ALONE], [6]], "what was under way stopped; the question is next"
        for length in range(1, 4):
            line = TokenPrefix(start_hash(1), [7] * length)
            work = Work(nothing, Span.of(line, length, length))
            assert (await asked(context, work)).error is None
        await settled(engine)
        assert max(map(max, forwards.parts[1:])) < PIECE
        assert not idle.done()
        forwards.parts.clear()
        context.close()
        made = await idle
        assert forwards.parts == [[ALONE], [300 - ALONE]], "in two pieces, from the beginning"
        with engine.wanted():
            ended = asyncio.ensure_future(engine.read_idle(reading))
            await settled(engine)
            ended.cancel()
            await settled(engine)
        assert len(forwards.parts) == 2, "nothing begins where a question is about to come"
    expected = model.document_kv(tokens).dump()
    assert all(np.array_equal(array, expected[name]) for name, array in made.dump().items())


class Shelf:
    """A Library of two chunks whose KV is not stored yet."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.chunks = [
            Chunk(f"{number:064x}", "The spare ink is in the drawer. " * 20, "Notes", "a.md", 0, 9)
            for number in range(2)
        ]
        self.stored: dict[str, DocumentKV] = {}
        self.embedder = Embedder.load()
        self.loads = 0

    def find(self, question: str, k: int, floor: float | None = None) -> list[Hit]:
        return [Hit(chunk, 1.0) for chunk in self.chunks]

    def tokens(self, chunk: Chunk) -> list[int]:
        return self.model.encode(chunk.text)

    def stored_kv(self, chunk: Chunk) -> DocumentKV | None:
        self.loads += 1
        return self.stored.get(chunk.digest)

    def store_kv(self, chunk: Chunk, made: DocumentKV) -> DocumentKV:
        self.stored[chunk.digest] = made
        return made


def side_of(
    model: LanguageModel, engine: Engine, librarian: JobThread, pool: KvPool
) -> LocalSide:
    clock = asyncio.get_running_loop().time
    shelf = cast(Library, Shelf(model))
    return LocalSide("cloud", model, engine, librarian, shelf, Recorder(clock, "cloud"), pool=pool)


@pytest.fixture
def by_references() -> Iterator[None]:
    """Memory is given back at once: nothing waits for the collector of cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("by_references")
async def test_answers_share_their_documents_and_give_back_what_they_took(
    model: LanguageModel, forwards: Forwards
) -> None:
    question, pool = Question(prompt="Where is the ink?", max_tokens=50), KvPool()
    async with running() as engine, JobThread("librarian") as librarian:
        side = side_of(model, engine, librarian, pool)
        first = await side.prepare(question, verifies=False)
        shelf = cast(Any, side.library)
        assert (len(shelf.stored), shelf.loads) == (2, 2)  # computed, for it was not stored
        assert max(map(max, forwards.parts)) <= ALONE
        kept = [pool.document(name) for name in shelf.stored]
        one, documents = pool.used, sum(each.bytes for each in kept if each is not None)
        del kept
        second = await side.prepare(question, verifies=False)
        assert shelf.loads == 2
        assert pool.used == 2 * one - documents
        end(first)
        assert pool.used == one
        end(second)
        await settled(engine)
        assert pool.used == 0
        third = await side.prepare(question, verifies=False)
        assert (shelf.loads, pool.used) == (4, one)  # read from the disk
        end(third)


def end(answer: PrefillResult) -> None:
    answer.context.close()


async def settled(engine: Engine) -> None:
    """What the threads have been given is done."""
    for _ in range(3):
        passed = asyncio.Event()
        engine.submit(partial(engine.post, passed.set))
        await passed.wait()
        await engine.heads.call(lambda: None)


@pytest.mark.usefixtures("by_references")
async def test_who_finds_no_room_hears_that_the_side_is_busy_and_nobody_is_pushed_out(
    model: LanguageModel,
) -> None:
    question, pool = Question(prompt="Where is the ink?", max_tokens=50), KvPool()
    async with running() as engine, JobThread("librarian") as librarian:
        side = side_of(model, engine, librarian, pool)
        first = await side.prepare(question, verifies=False)
        taken = pool.used
        pool.limit = taken + 10
        for _ in range(3):
            with pytest.raises(BusyError, match="too many answers are under way"):
                await side.prepare(question, verifies=False)
        assert pool.used == taken
        line = TokenPrefix(start_hash(question.seed), [5, 6])
        outcome = await asked(first.context, Work(nothing, Span.of(line, 2, 2)))  # type: ignore[arg-type]
        assert outcome.error is None
        end(first)
        await settled(engine)
        end(await side.prepare(question, verifies=False))


@pytest.mark.usefixtures("by_references")
async def test_an_answer_that_is_stopped_while_it_reads_gives_back_its_memory(
    model: LanguageModel,
) -> None:
    pool = KvPool()
    async with running() as engine, JobThread("librarian") as librarian:
        side = side_of(model, engine, librarian, pool)
        question = Question(prompt="Where is the ink? " * 150, max_tokens=50)
        for turns in (1, 5, 30):
            preparing = asyncio.ensure_future(side.prepare(question, verifies=False))
            for _ in range(turns):
                await librarian.call(lambda: None)
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
            del preparing
            await librarian.call(lambda: None)
            await settled(engine)
            for _ in range(100):  # what was cancelled ends where its thread is
                if pool.used:
                    await librarian.call(lambda: None)
            assert (pool.used, engine._preparing) == (0, 0)
