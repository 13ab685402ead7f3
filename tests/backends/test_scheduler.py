"""Requests that share forwards: who goes in, that each reads as if alone, and fair shares."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from random import Random
from typing import Any, cast

import pytest

from dragonrt.backends.backend import SHARED_TOKENS, ModelInfo, Preempted, Preemption
from dragonrt.backends.mixture import Mixture
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.scheduler import (
    ALONE,
    Client,
    Done,
    FairShares,
    Request,
    Scheduler,
    run_alone,
)
from dragonrt.errors import ModelError
from dragonrt.testing.loop import run

START = 5
DOCUMENTS = ("The printer beeps twice.", "Spare ink is in the left drawer.", "")


@cache
def info(exact: int | None) -> ModelInfo:
    return replace(LanguageModel.load("dragon-draft", "cpu").backend.info, exact_tokens=exact)


def made(rows: int, tokens: int, done: Done[Any], **options: Any) -> Request:
    """A request of rows that are nothing but a number."""

    class Rows:
        count, length, kv = rows, 0, None

        def reserve(self, tokens: object) -> None: ...

    return Request(cast(RowSet, Rows()), [0] * tokens, done, Preemption(), **options)


# Who goes in.


class Plan:
    """The forwards of a scheduler: the tokens of each request in it, by name."""

    def __init__(self, exact: int | None = None, piece: int = 1) -> None:
        self.scheduler, self.piece = Scheduler(info(exact)), piece
        self.names: dict[Request, str] = {}
        self.ended: list[str] = []

    def add(self, name: str, rows: int, tokens: int, prompt: int = 0, silent: int = 0) -> None:
        options = {"prompt": prompt, "piece": self.piece, "every": max(prompt, silent)}
        request = made(rows, tokens, lambda _: self.ended.append(name), **options)
        self.names[request] = name
        self.scheduler.add(request)

    def forward(self, piece: int = 12) -> dict[str, int]:
        batch = self.scheduler.schedule(piece)
        self.scheduler.update(batch, [[] for _ in batch.feeds])
        pairs = zip(batch.requests, batch.feeds, strict=True)
        return {self.names[request]: len(feed.tokens) for request, feed in pairs}


def test_a_long_text_advances_by_pieces_and_long_ones_take_turns() -> None:
    plan = Plan()
    plan.add("one", 1, 50, prompt=50)
    plan.add("two", 2, 50, prompt=50)
    forwards = []
    while plan.scheduler.requests:
        plan.add("answer", 2, 1)
        forwards.append(plan.forward(piece=20))
    assert plan.ended.count("answer") == len(forwards), "an answer waits for nobody"
    # 20 tokens of one row and 10 of two rows, in turn until the shorter one ends.
    assert [each.get("one", 0) for each in forwards] == [20, 0, 20, 0, 10, 0, 0, 0]
    assert [each.get("two", 0) for each in forwards] == [0, 10, 0, 10, 5, 10, 10, 5]


def test_beside_many_answers_prompts_advance_more() -> None:
    plan = Plan()
    plan.add("prompt", 2, 100, prompt=100)
    for number in range(4):
        plan.add(f"{number}", 2, 1)
    assert plan.forward() == {"0": 1, "1": 1, "2": 1, "3": 1, "prompt": 8}


def test_an_exact_forward_is_bounded_and_no_request_starves() -> None:
    plan = Plan(exact=8)
    plan.add("block", 2, 7)
    plan.add("token", 3, 1)
    plan.add("resumed", 1, 20, silent=19)
    assert plan.forward() == {"block": 4}
    assert plan.forward() == {"token": 1, "block": 2, "resumed": 1}
    assert plan.forward() == {"block": 1, "resumed": 6}
    assert plan.forward(piece=256) == {"resumed": 8}
    plan.add("wide", 20, 1)
    assert plan.forward() == {"resumed": 4}
    assert plan.forward() == {"wide": 1}


def test_prompts_are_cut_at_pieces_and_read_alone_without_room() -> None:
    plan = Plan(exact=8, piece=16)
    plan.add("prompt", 2, 44, prompt=42)
    plan.add("answer", 2, 5)
    forwards = [plan.forward() for _ in range(5)]
    assert forwards == [
        {"prompt": 16},
        {"answer": 4},
        {"prompt": 16},
        {"answer": 1},
        {"prompt": 10},
    ]
    assert plan.forward() == {"prompt": 2}
    plan.add("prompt", 2, 60, prompt=60)
    assert plan.forward(piece=100) == {"prompt": 48}


# What is read: a real model.


def cached(model: LanguageModel, *documents: int, prompt: str = "Where?") -> PrefixCache:
    stored = [model.document_kv(model.encode(DOCUMENTS[number])) for number in documents]
    return PrefixCache(partial(model.rows, stored, 64), model.encode(prompt), START)


def make(of: PrefixCache, tokens: list[int], first: int) -> Any:
    """The request of predictions, with a different hash for every prefix."""
    hashes = accumulate(tokens, lambda name, token: hash((name, token)), initial=START)
    return partial(of.request, tokens, list(hashes), first, hidden=True)


def sessions(model: LanguageModel) -> list[Any]:
    """What sessions of one to three rows read next: a token, a block, and much text."""
    found = []
    for number, (documents, length, first) in enumerate(
        [((0, 1), 1, 1), ((2,), 7, 0), ((1, 0, 2), 5, 3), ((0,), 90, 90)]
    ):
        of = cached(model, *documents, prompt=f"Question {number}: where is the ink?")
        of.read([], [START], 0, hidden=True)
        tokens = [(11 * number + 7 * place) % 400 + 5 for place in range(length)]
        found.append(make(of, tokens, first))
    return found


def bits(found: list[Mixture]) -> list[tuple[bytes, bytes]]:
    return [(each.p.tobytes(), each.hidden.tobytes()) for each in found]


def step(model: LanguageModel, scheduler: Scheduler, piece: int = 12) -> None:
    batch = scheduler.schedule(piece)
    scheduler.update(batch, model.backend.forward(batch.feeds) if batch.feeds else [])


def test_others_join_and_leave_between_two_forwards(model: LanguageModel) -> None:
    alone = [bits(run_alone(each)) for each in sessions(model)]
    scheduler, found = Scheduler(model.backend.info), dict[int, Any]()
    these = sessions(model)
    for number in (3, 0, 1, 2):  # the long one first
        scheduler.add(these[number](partial(found.__setitem__, number), Preemption()))
        step(model, scheduler)
    while scheduler.requests:
        step(model, scheduler)
    assert [bits(found[number]) for number in range(4)] == alone
    assert list(found) == [0, 1, 2, 3]


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_a_prompt_in_pieces_has_the_bits_of_a_whole_one(model: LanguageModel, piece: int) -> None:
    whole, cut = (cached(model, 0, 1, prompt="Where is the ink? " * 30) for _ in range(2))
    scheduler = Scheduler(model.backend.info)
    scheduler.add(cut.prefill(lambda _: None, Preemption()))
    while scheduler.requests:
        step(model, scheduler, piece)
    assert bits(run_alone(make(cut, [7, 8], 0))) == bits(run_alone(make(whole, [7, 8], 0)))


def test_errors_and_preemptions_reach_those_they_belong_to(model: LanguageModel) -> None:
    alone = bits(run_alone(sessions(model)[1]))
    these, stopped, found = sessions(model), Preemption(), dict[str, Any]()
    scheduler = Scheduler(model.backend.info)
    scheduler.add(these[1](partial(found.__setitem__, "right"), Preemption()))
    scheduler.add(these[3](partial(found.__setitem__, "stopped"), stopped))
    with pytest.raises(ModelError):
        scheduler.add(make(cached(model, 0), [10**6], 1)(found.clear, Preemption()))
    stopped.request()
    while scheduler.requests:
        step(model, scheduler)
    assert bits(found["right"]) == alone
    assert isinstance(found["stopped"], Preempted)
    scheduler.add(these[0](partial(found.__setitem__, "failed"), Preemption()))
    scheduler.update(scheduler.schedule(), MemoryError("no room"))
    assert isinstance(found["failed"], MemoryError)
    assert not scheduler.requests


def test_what_is_known_needs_no_forward(model: LanguageModel) -> None:
    of, found = cached(model, 0), list[Any]()
    expected = bits(run_alone(make(of, [], 0)))
    scheduler = Scheduler(model.backend.info)
    scheduler.add(make(of, [], 0)(found.append, Preemption()))
    assert not scheduler.requests
    assert bits(found[0]) == expected


# Fair shares: what a device waits for, whatever number of sessions or connections others have.

HONEST, GREEDY = ("10.0.0.1", "10.0.0.1:1"), ("10.0.0.2", "10.0.0.2:1")
FIXED = 5
"""What a forward takes beside its rows times tokens, in those."""
SHARE = 3
"""How many times its time alone the first token takes beside one other device, and one forward."""


class Engine:
    """A scripted engine in virtual time: a forward takes a second per row and token, and FIXED."""

    def __init__(self, info: ModelInfo) -> None:
        self.scheduler = Scheduler(info)
        self.open: Counter[Client] = Counter()
        self.used: Counter[Client] = Counter()  # rows times tokens
        self.largest = 0
        self._wake = asyncio.Event()

    async def read(
        self, client: Client, rows: int, tokens: int, prompt: int = 0, every: int = 0
    ) -> None:
        """Wait until a request is done."""

        done = asyncio.get_running_loop().create_future()
        every = max(prompt, every)
        self.scheduler.add(made(rows, tokens, done.set_result, prompt=prompt, every=every), client)
        self._wake.set()
        await done

    async def answer(self, client: Client, rows: int, prompt: int, tokens: int) -> float:
        """Prefill a prompt and decode; return the seconds to the first token."""
        clock = asyncio.get_running_loop().time
        began_s, first_s = clock(), 0.0
        self.open[client] += 1
        await self.read(client, rows, prompt, prompt)
        for _ in range(tokens):
            await self.read(client, rows, 1)
            first_s = first_s or clock() - began_s
        self.open[client] -= 1
        return first_s

    async def run(self) -> None:
        while True:
            clients = +self.open
            batch = self.scheduler.schedule(
                SHARED_TOKENS if self.open.total() > 1 else ALONE, clients
            )
            if batch.requests:
                self.largest = max(self.largest, batch.size)
                await asyncio.sleep(FIXED + batch.size)
                self.used += batch.used
                self.scheduler.update(batch, [[] for _ in batch.feeds])
                await asyncio.sleep(0)  # what was done is asked for again
            else:
                self._wake.clear()
                await self._wake.wait()


def simulated(test: Callable[[Engine], Any], of: ModelInfo) -> Any:
    """Return what a test returns beside an engine that runs, in virtual time."""

    async def running() -> Any:
        engine = Engine(of)
        task = asyncio.create_task(engine.run())
        try:
            return await test(engine)
        finally:
            task.cancel()

    return run(running())


def first_token(
    seed: int, sessions: int, of: ModelInfo, *, connections: int = 1
) -> tuple[float, int]:
    """The seconds to an honest device's first token beside another's sessions.

    Also the size of the largest forward of the other alone, which may be under way.
    """
    random = Random(seed)
    rows, prompt = random.randint(1, 6), random.randint(5, 200)

    async def test(engine: Engine) -> tuple[float, int]:
        others = [
            asyncio.create_task(
                engine.answer(
                    (GREEDY[0], f"10.0.0.2:{number % connections}"),
                    random.randint(1, 6),
                    random.randint(5, 400),
                    10_000,
                )
            )
            for number in range(sessions)
        ]
        await asyncio.sleep(random.uniform(0, 5_000) if sessions else 0)
        alone = engine.largest
        found = await engine.answer(HONEST, rows, prompt, 1)
        for other in others:
            other.cancel()
        return found, alone

    found: tuple[float, int] = simulated(test, of)
    return found


@pytest.mark.parametrize("exact", [None, 63, 16])
@pytest.mark.parametrize("seed", range(6))
def test_a_first_token_waits_no_longer_for_many_sessions(seed: int, exact: int | None) -> None:
    of = info(exact)
    alone, _ = first_token(seed, 0, of)
    for sessions, connections in [(1, 1), (8, 1), (32, 1), (32, 32), (100, 3)]:
        beside, largest = first_token(seed, sessions, of, connections=connections)
        assert beside <= SHARE * alone + FIXED + largest, (sessions, connections)


@pytest.mark.parametrize("exact", [None, 63, 16])
def test_devices_that_always_wait_get_equal_shares_of_the_tokens(exact: int | None) -> None:
    """Not of the requests: one has few wide ones, the other many narrow ones and long prompts."""

    async def test(engine: Engine) -> None:
        works = [
            engine.answer(GREEDY, 1 + number % 3, 50 * (number % 7) + 1, 10_000)
            for number in range(40)
        ]
        works += [engine.answer(HONEST, 6, 300, 10_000) for _ in range(8)]
        tasks = [asyncio.create_task(work) for work in works]
        await asyncio.sleep(2_000)
        before = engine.used.copy()
        await asyncio.sleep(20_000)
        for task in tasks:
            task.cancel()
        got = engine.used - before
        assert got[HONEST] == pytest.approx(got[GREEDY], rel=0.25)

    simulated(test, info(exact))


@pytest.mark.parametrize("sessions", [1, 6, 32, 100])
def test_next_tokens_do_not_wait_for_another_devices_sessions(sessions: int) -> None:
    rows = 4

    async def test(engine: Engine) -> float:
        others = [asyncio.create_task(engine.answer(GREEDY, 2, 1, 10_000)) for _ in range(sessions)]
        await asyncio.sleep(2_000)
        clock = asyncio.get_running_loop().time
        engine.open[HONEST] += 1
        await engine.read(HONEST, rows, 1)
        began_s = clock()
        for _ in range(50):
            await engine.read(HONEST, rows, 1)
        for other in others:
            other.cancel()
        return (clock() - began_s) / 50

    assert simulated(test, info(None)) <= FIXED + rows + SHARED_TOKENS


def test_idleness_and_spare_capacity_are_no_credit() -> None:
    """A device that was away, or used what nobody wanted, is the equal of one that waits."""
    one, other, new = (("address", f"connection {number}") for number in range(3))
    shares = FairShares()
    shares.charge({one: 500}, [one])
    assert shares.place(other) < shares.place(one), "it goes first once"
    shares.charge({one: 500, other: 10}, [one, other])
    assert shares.place(other) < shares.place(one)
    shares.charge({one: 500, other: 10}, [one])
    assert shares.place(new) < shares.place(other) < shares.place(one)
    assert shares.place(other)[-1] == 10, "it got all it wanted, and this forward counts"
    shares.charge({other: 700}, [one, other])
    assert shares.place(new) <= shares.place(one) < shares.place(other)
    shares.charge({}, [])
    assert shares.place(one) == shares.place(other), "nobody waits"
