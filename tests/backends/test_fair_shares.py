"""Fair shares: what a device waits for, whatever number of sessions or connections others have."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from dragonrt.backends.backend import BESIDE_ANSWERS, ModelInfo, Preemption
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.scheduler import ALONE, Client, FairShares, Request, Scheduler
from dragonrt.testing.loop import run

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

        class Rows:
            count, length, kv = rows, 0, None

            def reserve(self, tokens: object) -> None: ...

        done = asyncio.get_running_loop().create_future()
        made = cast(RowSet, Rows()), [0] * tokens, done.set_result, Preemption()
        self.scheduler.add(Request(*made, prompt=prompt, every=max(prompt, every)), client)
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
                BESIDE_ANSWERS if self.open.total() > 1 else ALONE, clients
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


def info(exact: int | None) -> ModelInfo:
    return replace(LanguageModel.load("dragon-draft", "cpu").backend.info, exact_tokens=exact)


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
def test_a_first_token_s_wait_does_not_grow_with_the_sessions_of_another_device(
    seed: int, exact: int | None
) -> None:
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
def test_the_next_tokens_do_not_wait_for_all_sessions_of_another_device(sessions: int) -> None:
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

    assert simulated(test, info(None)) <= FIXED + rows + BESIDE_ANSWERS


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
