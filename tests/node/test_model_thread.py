"""Many answers on one thread: nobody waits for others' length, and nothing is left behind."""

import asyncio
import gc
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from typing_extensions import override

from dragonrt.backends.backend import SHARED_TOKENS, Document, Preemption
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.scheduler import ALONE, PER_ROW, Batch, Client
from dragonrt.backends.transformers_.backend import TransformersBackend, TransformersTokenizer
from dragonrt.modes.mode import Prediction, Span, Work
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.node.answers.model_session import ForwardResult, ModelSession, PrefillResult
from dragonrt.node.model_thread import JobThread, ModelThread
from dragonrt.node.process.library import Library
from dragonrt.node.process.local_side import LocalSide
from dragonrt.traces.file import Recorder
from dragonrt.wire.reasons import BusyError
from retrieval import Chunk, Hit
from tests.node.virtual import outcome
from tests.tiny_models import tiny, tokenizer

LONG = 3500


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    made = tiny("llama", num_hidden_layers=1, max_position_embeddings=4096)
    backend = TransformersBackend(made, TransformersTokenizer(tokenizer()), "tiny")
    backend.info = replace(backend.info, prompt_piece=1)  # its bits do not matter here
    return LanguageModel("tiny", backend)


class CountedThread(ModelThread):
    """Counts what each forward computes, and how many begin while a job or a request waits."""

    def __init__(self, *parts: Any) -> None:
        self.forwards: list[list[int]] = []  # rows times tokens of each request
        self.before: list[int] = []
        self.within: list[int] = []
        self.clients: set[Client] = set()
        self.held = threading.Event()
        self.held.set()
        self.began = threading.Event()
        super().__init__(*parts)

    @override
    def submit(self, job: Callable[[], None]) -> None:
        since: list[int] = []

        def counted() -> None:
            self.before.append(len(self.forwards) - since[0] if since else 0)
            job()

        super().submit(counted)
        since.append(len(self.forwards))

    @override
    def begin(
        self, make: Any, done: Callable[[Any], None], preemption: Preemption, client: Client = ()
    ) -> None:
        began = len(self.forwards)
        self.clients.add(client)

        def end(result: object) -> None:
            self.within.append(len(self.forwards) - began)
            done(result)

        super().begin(make, end, preemption, client)

    @override
    def run(self, batch: Batch) -> Any:
        self.began.set()
        assert self.held.wait(60)
        pairs = zip(batch.requests, batch.feeds, strict=True)
        self.forwards.append([request.rows.count * len(feed.tokens) for request, feed in pairs])
        return super().run(batch)

    @property
    def largest(self) -> int:
        """The largest part of a forward."""
        return max(map(max, self.forwards))


@asynccontextmanager
async def running(model: LanguageModel) -> AsyncIterator[CountedThread]:
    async with JobThread("beside") as beside, CountedThread(model.backend, beside) as thread:
        yield thread


def nothing(said: Sequence[Prediction]) -> None:
    """Postprocessing that computes nothing."""


async def asked(session: Any, tokens: Sequence[int], first: int) -> ForwardResult:
    """The result of reading what follows the prefixes of these tokens from that length on."""
    line = TokenPrefix(start_hash(1), tokens)
    result = await outcome(session, Work(nothing, Span.of(line, first, len(tokens))))
    assert result.error is None
    return result


async def prepared(on: ModelThread, model: LanguageModel, tokens: Sequence[int]) -> ModelSession:
    documents = [model.document_kv(())] * 2
    cache = PrefixCache(partial(model.rows, documents, len(tokens) + 64), tokens, start_hash(1))
    await on.read(cache.prefill)
    return ModelSession(on, cache)


@pytest.mark.slow
@pytest.mark.parametrize("length", [40, LONG])
async def test_reading_a_question_delays_a_token_two_forwards_at_most(
    model: LanguageModel, length: int
) -> None:
    """A token waits for the forward under way at most; the next one is its own."""
    async with running(model) as thread:
        answers = [await prepared(thread, model, [5, 6, number]) for number in range(7, 11)]
        for counts in (thread.forwards, thread.before, thread.within):
            counts.clear()
        question = asyncio.ensure_future(prepared(thread, model, [9] * length))
        waiting: list[tuple[int, int]] = []

        async def answer(session: ModelSession) -> None:
            tokens: list[int] = []
            while not question.done() or len(tokens) < 3:
                await asked(session, tokens, len(tokens))
                waiting.append((len(thread.scheduler.requests), thread.answers))
                tokens.append(7 + len(tokens))
                del tokens[1 if len(tokens) > 50 else 50 :]

        await asyncio.gather(*map(answer, answers))
        for session in (*answers, await question):
            session.close()
    *tokens, of_the_question = sorted(thread.within)
    assert -(-2 * length // (PER_ROW * 8)) <= of_the_question <= -(-2 * length // SHARED_TOKENS)
    assert len(tokens) > 10
    assert max(tokens) == 1
    assert max(thread.before) <= 1
    for each in thread.forwards:
        assert max(each) <= max(SHARED_TOKENS, PER_ROW * (sum(each) - max(each)))
    assert all(queued <= 2 * answers + 1 for queued, answers in waiting)


async def test_a_question_without_waiters_is_read_in_large_pieces(model: LanguageModel) -> None:
    async with running(model) as thread:
        first = await prepared(thread, model, [9] * 300)
        assert list(map(max, thread.forwards)) == [ALONE, ALONE, 600 - 2 * ALONE]
        thread.forwards.clear()
        second = await prepared(thread, model, [9] * 30)  # the first may want a token any time
        assert thread.largest == SHARED_TOKENS
        first.close()
        first.close()
        assert thread.answers == 1
        thread.forwards.clear()
        await asked(second, [5] * 60, 0)
        assert thread.largest > SHARED_TOKENS  # its own block, and nobody else's
        second.close()
        assert thread.answers == 0


async def test_background_requests_yield_to_answers_and_run_when_idle(model: LanguageModel) -> None:
    """A question stops one within its forward, and none begins while the answer is open."""
    tokens = [9] * 300
    prefill = partial(model.prefill, tokens)
    async with running(model) as thread:
        thread.held.clear()
        idle = asyncio.ensure_future(thread.read_in_background(prefill))
        await asyncio.to_thread(thread.began.wait, 60)
        question = asyncio.ensure_future(prepared(thread, model, [5, 6, 7]))
        await asyncio.sleep(0)  # it has been asked for
        thread.held.set()
        session = await question
        assert thread.forwards == [[ALONE], [6]], "what was under way stopped; the question is next"
        for length in range(1, 4):
            await asked(session, [7] * length, length)
        await settled(thread)
        assert max(map(max, thread.forwards[1:])) < SHARED_TOKENS
        assert not idle.done()
        thread.forwards.clear()
        session.close()
        made = await asyncio.wait_for(idle, 20)
        assert thread.forwards == [[ALONE], [300 - ALONE]], "in two pieces, from the beginning"
        with thread.preparing():
            ended = asyncio.ensure_future(thread.read_in_background(prefill))
            await settled(thread)
            ended.cancel()
            await settled(thread)
        assert len(thread.forwards) == 2, "nothing begins where a question is about to come"
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
        self.stored: dict[str, Document] = {}
        self.embedder = load_embedder()
        self.loads = 0
        self.asked = deque[Chunk]()

    def find(
        self, question: str, k: int, floor: float | None = None, within: str = ""
    ) -> list[Hit]:
        return [Hit(chunk, 1.0) for chunk in self.chunks]

    def tokens(self, chunk: Chunk) -> list[int]:
        return self.model.encode(chunk.text)

    def stored_kv(self, chunk: Chunk) -> Document | None:
        self.loads += 1
        return self.stored.get(chunk.digest)

    def store_kv(self, chunk: Chunk, made: Document) -> Document:
        self.stored[chunk.digest] = made
        return made


@asynccontextmanager
async def side_of(model: LanguageModel) -> AsyncIterator[LocalSide]:
    async with running(model) as thread, JobThread("librarian") as librarian:
        recorder = Recorder(asyncio.get_running_loop().time, "cloud")
        shelf = cast(Library, Shelf(model))
        yield LocalSide("cloud", model, thread, librarian, shelf, recorder)


@pytest.fixture
def _by_references() -> Iterator[None]:
    """Memory is given back at once: nothing waits for the collector of cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def end(answer: PrefillResult) -> None:
    answer.context.close()


async def settled(thread: ModelThread) -> None:
    """What the threads have been given is done."""
    for _ in range(3):
        await thread.call(lambda: None)
        await thread.postprocessing.call(lambda: None)


class TakingTurns(ModelThread):
    """Counts the forwards that begin while another thread's is under way."""

    inside = overlaps = forwards = 0

    @override
    def run(self, batch: Batch) -> Any:
        TakingTurns.overlaps += TakingTurns.inside
        TakingTurns.forwards += 1
        TakingTurns.inside += 1
        try:
            return super().run(batch)
        finally:
            TakingTurns.inside -= 1


async def test_the_first_and_the_last_of_open_answers_are_reported(model: LanguageModel) -> None:
    said: list[bool] = []
    async with running(model) as thread:
        thread.on_busy = said.append
        with thread.preparing(), thread.preparing():
            assert thread.busy
        assert not thread.busy
    assert said == [True, False]


async def test_two_sides_that_share_a_model_do_not_compute_at_once(model: LanguageModel) -> None:
    async with (
        JobThread("beside") as beside,
        TakingTurns(model.backend, beside) as one,
        TakingTurns(model.backend, beside) as two,
    ):
        reading = (prepared(thread, model, [5] * 2000) for thread in (one, two))
        for session in await asyncio.gather(*reading):
            session.close()
    assert TakingTurns.forwards > 8
    assert TakingTurns.overlaps == 0


@pytest.mark.usefixtures("_by_references")
async def test_answers_give_back_what_they_took(model: LanguageModel) -> None:
    question = Question(prompt="Where is the ink?", seed=1, max_tokens=50)
    async with side_of(model) as side:
        first = await side.prepare(question, verifies=False, client=("address", "connection"))
        shelf, thread = cast(Any, side.library), cast(CountedThread, side.thread)
        await asked(first.context, [5, 6], 2)
        assert thread.clients == {("address", "connection")}
        assert (len(shelf.stored), shelf.loads) == (2, 2)  # computed, for it was not stored
        assert thread.largest <= ALONE
        one = model.backend.pool.used
        assert one > 0
        forwards = len(thread.forwards)
        second = await side.prepare(question, verifies=False)
        assert max(map(max, thread.forwards[forwards:])) <= SHARED_TOKENS
        assert (shelf.loads, model.backend.pool.used) == (4, 2 * one)
        end(first)
        assert model.backend.pool.used == one
        end(second)
        await settled(side.thread)
        assert model.backend.pool.used == 0


@pytest.mark.usefixtures("_by_references")
async def test_a_client_without_room_gets_busy_and_evicts_nobody(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Question(prompt="Where is the ink?", seed=1, max_tokens=50)
    async with side_of(model) as side:
        first = await side.prepare(question, verifies=False)
        taken = model.backend.pool.used
        monkeypatch.setattr(model.backend.pool, "limit", taken + 10)
        for _ in range(3):
            with pytest.raises(BusyError):
                await side.prepare(question, verifies=False)
        assert model.backend.pool.used == taken
        await asked(first.context, [5, 6], 2)
        late = await side.prepare(question, verifies=False, late=True)
        found = await outcome(late.context, Work(nothing, Span([], [start_hash(1)], 0)))
        assert isinstance(found.error, BusyError), "it opens its rows with the first forward"
        del found
        end(late)
        end(first)
        await settled(side.thread)
        end(await side.prepare(question, verifies=False))


async def test_of_a_question_that_is_cancelled_no_more_is_read(model: LanguageModel) -> None:
    async with running(model) as thread:
        thread.held.clear()
        preparing = asyncio.ensure_future(prepared(thread, model, [9] * 2000))
        await asyncio.to_thread(thread.began.wait, 60)
        preparing.cancel()
        await asyncio.gather(preparing, return_exceptions=True)
        thread.held.set()
        await settled(thread)
        assert len(thread.forwards) == 1, "the one that was under way"


@pytest.mark.usefixtures("_by_references")
async def test_an_answer_stopped_while_reading_frees_its_memory(model: LanguageModel) -> None:
    question = Question(prompt="Where is the ink? " * 150, max_tokens=50)
    async with side_of(model) as side:
        for turns in (1, 5, 30):
            preparing = asyncio.ensure_future(side.prepare(question, verifies=False))
            for _ in range(turns):
                await side.librarian.call(lambda: None)
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
            del preparing
            for _ in range(100):  # what was cancelled ends where its thread is
                await side.librarian.call(lambda: None)
                await settled(side.thread)
            assert (model.backend.pool.used, side.thread.scheduler.requests) == (0, [])


async def test_chunks_are_kept_for_resuming_and_the_newest_answers(model: LanguageModel) -> None:
    """Else a side that runs for months keeps the chunks of all its answers."""
    asked = [Question(prompt="Where is the ink?", seed=seed) for seed in range(65)]
    async with side_of(model) as side:

        async def read(question: Question) -> str:
            answer = await side.prepare(question, verifies=False, late=True)
            end(answer)
            return answer.passages_hash

        before, *_ = [await read(question) for question in asked]
        assert len(side.pinned) == 64
        cast(Any, side.library).chunks.pop()
        first, *_, newest = [replace(question, accepted=(5,)) for question in asked]
        assert await read(newest) == before
        assert await read(first) != before, "the oldest is read anew"
