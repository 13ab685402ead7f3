"""The drafter on a real model: however a prefix is reached, its prediction has the same bits."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from dragonrt.distributions.codec import codec
from dragonrt.language.model import LanguageModel
from dragonrt.language.reader import Reader, Weighing
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.drafter import Prediction, PreemptedError
from dragonrt.runtime.lookup import LONGEST, Lookup
from dragonrt.runtime.model_drafter import ModelDrafter
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.worker import ModelWorker
from dragonrt.sampling.samplers import Sampler

DOCUMENTS = (
    "When the printer beeps, press green twice and wait 20 seconds.",
    "The spare ink is in the left drawer under the window.",
)
QUESTION = "Question: What do I do when the printer beeps?\nAnswer:"
PLAN = Plan(7, Sampler(temperature=0.8), codec="topp:0.9", max_tokens=24, stop_tokens=(0,))
SYNC = Plan(
    7, Sampler(temperature=0.8), "coupled", Placement.SYNC, "topp:0.9", 24, stop_tokens=(0,)
)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    loaded = LanguageModel.load("dragon-small", "cpu", request.param)
    if not loaded.exact_blocks:
        pytest.skip(f"this CPU promises nothing of {request.param}")
    return loaded


@asynccontextmanager
async def drafting(
    model: LanguageModel, plan: Plan, weighing: Weighing | None = None, exact: bool = True
) -> AsyncIterator[ModelDrafter]:
    async with ModelWorker() as worker:
        texts = [model.encode(model.prompt.document_text("", text)) for text in DOCUMENTS]
        sequence = model.sequence([model.document_kv(text) for text in texts], capacity=64)
        reader = Reader.behind(
            sequence,
            model.encode(QUESTION),
            start_hash(plan.seed),
            weighing or Weighing(np.array([12.0, 9.0])),
            in_blocks=exact,
        )
        yield ModelDrafter(
            "device", worker, reader, Lookup(texts), plan, codec(plan.codec, model.vocabulary)
        )


def bits(prediction: Prediction) -> tuple[int, bytes, float]:
    return prediction.token, prediction.payload, prediction.relevance


async def one_by_one(model: LanguageModel, tokens: list[int], **how: object) -> list[Prediction]:
    """The predictions after every prefix of `tokens`, each from one single-token forward."""
    line = Line(start_hash(7))
    predictions = []
    async with drafting(model, SYNC, **how) as drafter:  # type: ignore[arg-type]
        for step in range(len(tokens) + 1):
            found = await drafter.predict(line, step, step)
            assert len(found) == 1, "a synchronous drafter must not run ahead"
            predictions += found
            if step < len(tokens):
                line.append(tokens[step])
    return predictions


async def test_rollbacks_blocks_and_running_ahead_change_no_bit(model: LanguageModel) -> None:
    chance = random.Random(3)
    reference: dict[int, Prediction] = {}

    async def expected(line: Line, step: int) -> Prediction:
        key = line.hashes[step]
        if key not in reference:
            found = await one_by_one(model, line.tokens[:step])
            reference.update(zip(line.hashes, found, strict=False))
        return reference[key]

    ran_ahead = 0
    async with drafting(model, PLAN) as drafter:
        line = Line(start_hash(7))
        for _ in range(60):
            last = len(line)
            first = max(0, last - chance.randrange(4)) if chance.random() < 0.3 else last
            predictions = await drafter.predict(line, first, last)
            for step, prediction in enumerate(predictions, start=first):
                if step > len(line):
                    line.append(predictions[step - 1 - first].token)
                    ran_ahead += 1
                assert bits(prediction) == bits(await expected(line, step))
            if len(line) + LONGEST < PLAN.max_tokens and chance.random() < 0.8:
                line.append(predictions[-1].token)
            else:
                line.replace_from(chance.randrange(len(line) + 1), [chance.randrange(2, 500)])
    assert ran_ahead > 5, "the lookup never came true, so nothing ran ahead"


async def test_without_exact_blocks_nothing_is_guessed_and_the_bits_stay(
    model: LanguageModel,
) -> None:
    line = Line(start_hash(7), [301, 450, 435])
    async with drafting(model, PLAN, exact=False) as drafter:
        predictions = await drafter.predict(line, 1, 3)
    assert len(predictions) == 3
    found = await one_by_one(model, line.tokens)
    assert [bits(p) for p in predictions] == [bits(p) for p in found[1:]]


async def test_a_preempted_forward_leaves_no_trace(model: LanguageModel) -> None:
    line = Line(start_hash(7), [301, 450, 435, 432])
    expected = await one_by_one(model, line.tokens)
    async with drafting(model, PLAN) as drafter:
        for _ in range(5):
            gate = threading.Event()
            drafter._worker.submit(lambda gate=gate: gate.wait(60))  # type: ignore[misc]
            asked = asyncio.ensure_future(drafter.predict(line, 4, 4))
            await asyncio.sleep(0)
            drafter.preempt()
            gate.set()
            with pytest.raises(PreemptedError):
                await asked
        prediction = (await drafter.predict(line, 4, 4))[0]
        assert bits(prediction) == bits(expected[4])


async def test_a_failing_forward_raises_where_it_is_awaited(model: LanguageModel) -> None:
    async with drafting(model, PLAN) as drafter:
        with pytest.raises(Exception, match="tokens must lie between"):
            await drafter.predict(Line(start_hash(7), [10**9]), 1, 1)
        assert len(await drafter.predict(Line(start_hash(7)), 0, 0)) >= 1


async def test_new_weights_come_every_n_tokens_and_depend_on_the_text_alone(
    model: LanguageModel,
) -> None:
    asked: list[list[int]] = []

    def again(tokens: list[int]) -> np.ndarray:
        asked.append(tokens)
        return np.array([len(tokens) / 4, 1.0])

    weighing = Weighing(np.array([12.0, 9.0]), every=4, again=again)
    tokens = [301, 450, 435, 432, 15, 301, 450, 435, 432, 15]
    found = await one_by_one(model, tokens, weighing=weighing)
    assert asked == [tokens[:4], tokens[:8]]
    log_sums = [np.logaddexp(12.0, 9.0)] * 4 + [np.logaddexp(1, 1)] * 4 + [np.logaddexp(2, 1)] * 3
    assert [p.relevance for p in found] == pytest.approx(log_sums)


@pytest.mark.parametrize(
    ("tokens", "guess"),
    [
        ([5, 6], [7, 8]),  # a pair decides, and half of the longest guess is the first one
        ([9, 7], [8, 5]),  # no such pair; 7 stands only once
        ([9, 5], []),  # 5 stands twice
        ([], []),
        ([99], []),
    ],
)
def test_lookup_guesses_what_the_documents_say_next(tokens: list[int], guess: list[int]) -> None:
    assert Lookup([[5, 6, 7, 8, 5, 3, 6]]).guess(tokens, room=10) == guess


def test_luck_sets_the_length_and_room_bounds_it() -> None:
    text = list(range(20))
    lookup = Lookup([text])
    for _ in range(20):
        lookup.learn(4, 4)
    assert lookup.guess([3], room=10) == [4, 5, 6, 7]
    assert lookup.guess([3], room=2) == [4, 5]
    assert lookup.guess([18], room=10) == [19]
    for _ in range(20):
        lookup.learn(4, 0)
    assert lookup.guess([3], room=10) == [4]


def test_a_worker_survives_failing_jobs_and_runs_in_order(model: LanguageModel) -> None:
    async def main() -> None:
        async with ModelWorker() as worker:
            order: list[int] = []
            jobs: list[Callable[[], None]] = [lambda i=i: order.append(i) for i in range(5)]  # type: ignore[misc]
            await asyncio.gather(*(worker.run(job) for job in jobs))
            assert order == list(range(5))
            with pytest.raises(ZeroDivisionError):
                await worker.run(lambda: 1 / 0)
            assert await worker.run(lambda: 42) == 42

    asyncio.run(main())
