"""Requests that share forwards: who goes in, how much of it, and that each reads as if alone."""

from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, cast

import pytest

from dragonrt.backends.backend import Preempted, Preemption
from dragonrt.backends.mixture import Mixture
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.scheduler import Request, Scheduler, run_alone
from dragonrt.errors import ModelError

START = 5
DOCUMENTS = ("The printer beeps twice.", "Spare ink is in the left drawer.", "")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load("dragon-small")


# Who goes in: rows that are nothing but a number.


class Plan:
    """The forwards of a scheduler: the tokens of each request in it, by name."""

    def __init__(self, exact: int | None = None, piece: int = 1) -> None:
        info = LanguageModel.load("dragon-draft", "cpu").backend.info
        self.scheduler, self.piece = Scheduler(replace(info, exact_tokens=exact)), piece
        self.names: dict[Request, str] = {}
        self.ended: list[str] = []

    def add(self, name: str, rows: int, tokens: int, prompt: int = 0, silent: int = 0) -> None:
        class Rows:
            count, length, kv = rows, 0, None

            def reserve(self, tokens: object) -> None: ...

        request = Request(
            cast(RowSet, Rows()),
            [0] * tokens,
            lambda _: self.ended.append(name),
            Preemption(),
            prompt=prompt,
            piece=self.piece,
            every=max(prompt, silent),
        )
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


def test_an_exact_forward_carries_so_many_rows_times_tokens_and_nobody_starves() -> None:
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


def test_prompts_are_cut_at_pieces_and_are_read_alone_if_they_find_no_room() -> None:
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


def cache(model: LanguageModel, *documents: int, prompt: str = "Where?") -> PrefixCache:
    stored = [model.document_kv(model.encode(DOCUMENTS[number])) for number in documents]
    return PrefixCache(partial(model.rows, stored, 64), model.encode(prompt), START)


def make(of: PrefixCache, tokens: list[int], first: int) -> Any:
    """The request of predictions, with a different hash for every prefix."""
    hashes = accumulate(tokens, lambda name, token: hash((name, token)), initial=START)
    return partial(of.request, tokens, list(hashes), first, hidden=True)


def sessions(model: LanguageModel) -> list[Any]:
    """What sessions of one to three rows read next: a token, a block, and much text."""
    made = []
    for number, (documents, length, first) in enumerate(
        [((0, 1), 1, 1), ((2,), 7, 0), ((1, 0, 2), 5, 3), ((0,), 90, 90)]
    ):
        of = cache(model, *documents, prompt=f"Question {number}: where is the ink?")
        of.read([], [START], 0, hidden=True)
        tokens = [(11 * number + 7 * place) % 400 + 5 for place in range(length)]
        made.append(make(of, tokens, first))
    return made


def bits(found: list[Mixture]) -> list[tuple[bytes, bytes]]:
    return [(each.p.tobytes(), each.hidden.tobytes()) for each in found]


def step(model: LanguageModel, scheduler: Scheduler, piece: int = 12) -> None:
    batch = scheduler.schedule(piece)
    scheduler.update(batch, model.backend.forward(batch.feeds) if batch.feeds else [])


def test_others_join_and_leave_between_two_forwards(model: LanguageModel) -> None:
    alone = [bits(run_alone(each)) for each in sessions(model)]
    scheduler, found = Scheduler(model.backend.info), dict[int, Any]()
    made = sessions(model)
    for number in (3, 0, 1, 2):  # the long one first
        scheduler.add(made[number](partial(found.__setitem__, number), Preemption()))
        step(model, scheduler)
    while scheduler.requests:
        step(model, scheduler)
    assert [bits(found[number]) for number in range(4)] == alone
    assert list(found) == [0, 1, 2, 3]


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_a_prompt_read_in_pieces_leaves_the_bits_of_one_read_at_once(
    model: LanguageModel, piece: int
) -> None:
    whole, cut = (cache(model, 0, 1, prompt="Where is the ink? " * 30) for _ in range(2))
    scheduler = Scheduler(model.backend.info)
    scheduler.add(cut.prefill(lambda _: None, Preemption()))
    while scheduler.requests:
        step(model, scheduler, piece)
    assert bits(run_alone(make(cut, [7, 8], 0))) == bits(run_alone(make(whole, [7, 8], 0)))


def test_errors_and_preemptions_reach_those_they_belong_to(model: LanguageModel) -> None:
    alone = bits(run_alone(sessions(model)[1]))
    made, stopped, found = sessions(model), Preemption(), dict[str, Any]()
    scheduler = Scheduler(model.backend.info)
    scheduler.add(made[1](partial(found.__setitem__, "right"), Preemption()))
    scheduler.add(made[3](partial(found.__setitem__, "stopped"), stopped))
    with pytest.raises(ModelError):
        scheduler.add(make(cache(model, 0), [10**6], 1)(found.clear, Preemption()))
    stopped.request()
    while scheduler.requests:
        step(model, scheduler)
    assert bits(found["right"]) == alone
    assert isinstance(found["stopped"], Preempted)
    scheduler.add(made[0](partial(found.__setitem__, "failed"), Preemption()))
    scheduler.update(scheduler.schedule(), MemoryError("no room"))
    assert isinstance(found["failed"], MemoryError)
    assert not scheduler.requests


def test_what_is_known_needs_no_forward(model: LanguageModel) -> None:
    of, found = cache(model, 0), list[Any]()
    expected = bits(run_alone(make(of, [], 0)))
    scheduler = Scheduler(model.backend.info)
    scheduler.add(make(of, [], 0)(found.append, Preemption()))
    assert not scheduler.requests
    assert bits(found[0]) == expected
