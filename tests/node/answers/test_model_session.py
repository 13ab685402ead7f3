"""Work on a real model: however a prefix is reached, what is said has the same bits."""

import asyncio
import functools
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from dragonrt.backends.backend import Document
from dragonrt.backends.mixture import Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.modes.mode import Prediction, Span, Work
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.node.answers.model_session import ForwardResult, ModelSession
from dragonrt.node.model_thread import JobThread, ModelThread

DOCUMENTS = (
    "When the printer beeps, press green twice and wait 20 seconds.",
    "The spare ink is in the left drawer under the window.",
)
QUESTION = "Question: What do I do when the printer beeps?\nAnswer:"
TEXT = [301, 450, 435, 432]

Bits = tuple[bytes, float, bytes]


@dataclass
class Bench:
    """A session on a model, and the thread behind it."""

    thread: ModelThread
    session: ModelSession

    def hold(self) -> Callable[[], None]:
        """Keep the model's thread busy until what is returned is called."""
        gate = threading.Event()

        def wait() -> None:
            gate.wait(60)

        self.thread.submit(wait)
        return gate.set

    def start(self, work: Work) -> "asyncio.Future[ForwardResult]":
        future: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
        self.session.start(work, future.set_result)
        assert not future.done(), "never at once"
        return future

    async def settled(self) -> None:
        """All that was handed to the threads is done, and the loop has heard of it."""
        for _ in range(10):  # what follows queues up jobs later
            await self.thread.call(lambda: None)
            await self.thread.postprocessing.call(lambda: None)


@functools.cache
def stored(model: LanguageModel) -> list[Document]:
    """Documents, made while no thread runs."""
    texts = [model.encode(model.prompt.document_text("", text)) for text in DOCUMENTS]
    return [model.document_kv(text) for text in texts]


def cache(model: LanguageModel, prompt: str = QUESTION, *, in_blocks: bool = True) -> PrefixCache:
    documents, tokens = stored(model), model.encode(prompt)
    weighing = Weighing(np.array([12.0, 9.0]))
    rows = partial(model.rows, documents, len(tokens) + 64)
    return PrefixCache(rows, tokens, start_hash(7), weighing, in_blocks=in_blocks)


@asynccontextmanager
async def bench(model: LanguageModel, *, in_blocks: bool = True) -> AsyncIterator[Bench]:
    async with JobThread("beside") as beside, ModelThread(model.backend, beside) as thread:
        read = cache(model, in_blocks=in_blocks)
        await thread.read(read.prefill)
        yield Bench(thread, ModelSession(thread, read))


def bits(said: Sequence[Prediction]) -> list[Bits]:
    return [(each.p.tobytes(), each.relevance, each.hidden.tobytes()) for each in said]


def work(tokens: Sequence[int], first: int | None = None, **fields: Any) -> Work:
    """What follows the prefixes of `tokens` from length `first` on, else all of them."""
    line = TokenPrefix(start_hash(7), tokens)
    span = Span.of(line, len(line) if first is None else first, len(line), hidden=True)
    return Work(bits, span, **fields)


async def one_by_one(model: LanguageModel, tokens: Sequence[int], **how: Any) -> list[Bits]:
    """What is said after every prefix of `tokens`, each from one single-token forward."""
    found: list[Bits] = []
    async with bench(model, **how) as on:
        for length in range(len(tokens) + 1):
            outcome = await on.start(work(tokens[:length]))
            found += outcome.value
    return found


async def test_rollbacks_blocks_and_guesses_change_no_bit(model: LanguageModel) -> None:
    chance = random.Random(3)
    reference: dict[int, Bits] = {}

    async def expected(tokens: Sequence[int], first: int) -> list[Bits]:
        hashes = TokenPrefix(start_hash(7), tokens).hashes
        if any(each not in reference for each in hashes[first:]):
            reference.update(zip(hashes, await one_by_one(model, tokens), strict=True))
        return [reference[each] for each in hashes[first:]]

    async with bench(model) as on:
        tokens: list[int] = []
        for _ in range(40):
            first = max(0, len(tokens) - chance.randrange(4))
            guess = [chance.randrange(2, 500) for _ in range(chance.choice((0, 0, 2)))]
            outcome = await on.start(work(tokens, first, guess=guess))
            assert outcome.error is None
            assert outcome.value == await expected([*tokens, *guess], first)
            said = np.frombuffer(outcome.value[len(tokens) - first][0], np.float32)
            if len(tokens) < 16 and chance.random() < 0.8:
                tokens.append(int(said.argmax()))
            else:
                tokens[chance.randrange(len(tokens) + 1) :] = [chance.randrange(2, 500)]


async def test_without_blocks_the_bits_are_the_same(model: LanguageModel) -> None:
    async with bench(model, in_blocks=False) as on:
        outcome = await on.start(work(TEXT[:3], 1))
    assert outcome.value == (await one_by_one(model, TEXT[:3]))[1:]


async def test_a_preempted_forward_leaves_no_trace(model: LanguageModel) -> None:
    expected = await one_by_one(model, TEXT)
    async with bench(model) as on:
        for _ in range(5):
            release = on.hold()
            asked = on.start(work(TEXT))
            on.session.preempt()
            release()
            outcome = await asked
            assert (outcome.preempted, outcome.value, outcome.error) == (True, None, None)
        assert (await on.start(work(TEXT))).value == expected[4:]
        on.session.preempt()  # without effect when there is nothing under way


async def test_errors_belong_to_who_wants_the_work(model: LanguageModel) -> None:
    """Of the forward, of postprocessing behind it or without it, and of naming what follows."""

    def fails(_: object) -> Any:
        raise ZeroDivisionError("one over nothing")

    async with bench(model) as on:
        outcome = await on.start(work([10**9]))
        assert "tokens must lie between" in str(outcome.error)
        span = work(TEXT).span
        for failing in (Work(fails, span), Work(fails), Work(bits, span, following=fails)):
            outcome = await on.start(failing)
            assert outcome.work is failing
            assert isinstance(outcome.error, ZeroDivisionError)
        assert len((await on.start(work(TEXT, 0))).value) == 5


async def test_work_without_a_span_waits_for_no_forward(model: LanguageModel) -> None:
    async with bench(model) as on:
        release = on.hold()
        forward = on.start(work(TEXT))
        outcome = await on.start(Work(lambda said: (threading.current_thread().name, len(said))))
        assert outcome.value == ("beside", 0)
        assert not forward.done()
        release()
        assert (await forward).error is None


async def test_what_follows_begins_before_it_is_asked_for(model: LanguageModel) -> None:
    """It is computed once, and given to who then asks for the same prefixes."""
    computed: list[str] = []

    def postprocess(name: str) -> Callable[[Sequence[Prediction]], list[Bits]]:
        def compute(said: Sequence[Prediction]) -> list[Bits]:
            computed.append(name)
            return bits(said)

        return compute

    def then(_: list[Bits]) -> Work:
        return Work(postprocess("begun"), work(TEXT).span)

    expected = await one_by_one(model, TEXT)
    async with bench(model) as on:
        first = await on.start(Work(postprocess("first"), work(TEXT[:3]).span, following=then))
        assert first.value == expected[3:4]
        await on.settled()
        assert computed == ["first", "begun"]
        asked = Work(postprocess("asked"), work(TEXT).span)
        outcome = await on.start(asked)
        assert outcome.work is asked
        assert outcome.value == expected[4:]
        assert computed == ["first", "begun"]


async def test_what_follows_and_does_not_fit_is_stopped(model: LanguageModel) -> None:
    expected = await one_by_one(model, TEXT)
    async with bench(model) as on:
        held: list[Callable[[], None]] = []

        def then(_: list[Bits]) -> Work:
            held.append(on.hold())  # so that it waits in the queue
            return work([*TEXT[:3], 999])

        first = await on.start(work(TEXT[:3], following=then))
        other = on.start(work(TEXT))
        held[0]()
        assert (await other).value == expected[4:]
        assert first.value == expected[3:4]


async def test_a_preemption_reaches_what_follows(model: LanguageModel) -> None:
    async with bench(model) as on:
        held: list[Callable[[], None]] = []

        def then(_: list[Bits]) -> Work:
            held.append(on.hold())
            return work(TEXT)

        await on.start(work(TEXT[:3], following=then))
        on.session.preempt()
        asked = on.start(work(TEXT))
        held[0]()
        assert (await asked).preempted
        assert not (await on.start(work(TEXT))).preempted


async def test_nothing_is_heard_of_a_closed_context(model: LanguageModel) -> None:
    heard: list[ForwardResult] = []
    for moment in ("under way", "done"):
        async with bench(model) as on:
            release = on.hold()
            on.session.start(work(TEXT[:3], following=lambda _: work(TEXT)), heard.append)
            on.session.start(Work(bits), heard.append)
            if moment == "under way":
                on.session.close()
            release()
            if moment == "done":
                on.thread.submit(lambda: None)
                on.session.close()
            await on.settled()
    assert heard == []


async def test_a_thread_survives_failing_jobs_and_runs_in_order() -> None:
    async with JobThread("thread") as thread:
        order: list[int] = []

        def job(number: int) -> Callable[[], None]:
            return lambda: order.append(number)

        await asyncio.gather(*(thread.call(job(number)) for number in range(5)))
        assert order == list(range(5))
        with pytest.raises(ZeroDivisionError):
            await thread.call(lambda: 1 / 0)
        assert await thread.call(lambda: 42) == 42


async def test_answers_share_forwards_and_no_bit_depends_on_who_shares(
    model: LanguageModel,
) -> None:
    """Eight answers at once, each at its own place, a long question joining in the middle."""
    expected = await one_by_one(model, TEXT)
    forwards: list[int] = []
    async with bench(model) as on:
        on.thread.on_forward = forwards.append

        async def answer(number: int) -> list[Bits]:
            read = cache(model)
            if number % 2:  # otherwise with the first forward
                await on.thread.read(read.prefill)
            session, found = ModelSession(on.thread, read), list[Bits]()
            for length in range(len(TEXT) + 1):
                done: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
                first = max(0, length - number % 3)
                session.start(work(TEXT[:length], first), done.set_result)
                found = found[:first] + (await done).value
            return found

        long = cache(model, "Where is the spare ink? " * 40)
        prefill = asyncio.ensure_future(on.thread.read(long.prefill))
        answers = await asyncio.gather(*map(answer, range(8)))
        await prefill
        assert max(forwards) > 1
    assert answers == [expected] * 8
