"""Readings that share forwards: each as if alone, nobody held up, errors where they belong."""

from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from dragonrt.backends.sequence import (
    Batch,
    Reading,
    Sequence,
    Task,
    advance,
    read_alone,
)

from dragonrt.backends import sequence as batches
from dragonrt.backends.backend import Feed, Preempted, Preemption
from dragonrt.backends.mixture import Mixture
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.errors import ModelError

START = 5
DOCUMENTS = ("The printer beeps twice.", "Spare ink is in the left drawer.", "")


@pytest.fixture(scope="module", params=["float32", "bfloat16", "int4"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    loaded = LanguageModel.load("dragon-small", "cpu", request.param)
    if not loaded.exact_blocks:
        pytest.skip(f"this CPU promises nothing of {request.param}")
    return loaded


def rows(model: LanguageModel, *documents: int) -> Sequence:
    stored = [model.document_kv(model.encode(DOCUMENTS[number])) for number in documents]
    return model.rows(stored, 64)


def named(tokens: list[int]) -> list[int]:
    """A different number for every prefix."""
    return list(accumulate(tokens, lambda name, token: hash((name, token)), initial=START))


def along(reader: PrefixCache, tokens: list[int], first: int) -> Reading[list[Mixture]]:
    return reader.reading(tokens, named(tokens), first, Preemption())


def sessions(model: LanguageModel) -> list[tuple[PrefixCache, list[int], int]]:
    """What sessions of one to three rows read next: a token, a block, and much text."""
    made = []
    for number, (documents, length, first) in enumerate(
        [((0, 1), 1, 1), ((2,), 7, 0), ((1, 0, 2), 5, 3), ((0,), 90, 90)]
    ):
        prompt = model.encode(f"Question {number}: where is the ink?")
        tokens = [(11 * number + 7 * place) % 400 + 5 for place in range(length)]
        made.append((PrefixCache.behind(rows(model, *documents), prompt, START), tokens, first))
    return made


def bits(said: list[Mixture]) -> list[tuple[bytes, bytes]]:
    return [(each.p.tobytes(), each.hidden.tobytes()) for each in said]


def test_others_join_and_leave_between_two_forwards(model: LanguageModel) -> None:
    alone = [bits(read_alone(along(*session))) for session in sessions(model)]
    shared = Batch()
    order: list[int] = []
    found: dict[int, Any] = {}

    def done(number: int, said: Any) -> None:
        order.append(number)
        found[number] = bits(said)

    made = sessions(model)
    for number in (3, 0, 1, 2):  # the long one first
        shared.add(along(*made[number]), partial(done, number))
        shared.step()
    while len(shared):
        shared.step()
    assert [found[number] for number in range(4)] == alone
    assert order == [0, 1, 2, 3]


def test_a_long_text_advances_by_pieces_and_long_ones_take_turns(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    forwards: list[list[int]] = []

    def counted(feeds: dict[Task, Feed]) -> None:
        forwards.append([task.part for task in feeds])
        advance(feeds)

    monkeypatch.setattr(batches, "advance", counted)
    shared = Batch()
    ended: list[str] = []

    def end(name: str, _: object) -> None:
        ended.append(name)

    long = [5 + place % 300 for place in range(100)]
    for name, documents in (("one", (0,)), ("two", (1, 2))):
        reading = Reader.reading_prompt(rows(model, *documents), long, START)
        shared.add(reading, partial(end, name))
    short = sessions(model)[0][0]
    tokens: list[int] = []
    forwards.clear()
    while len(shared):
        asked: list[Any] = []
        tokens.append(7)
        shared.add(along(short, tokens, len(tokens)), asked.append)
        shared.step(piece=20)
        assert len(asked) == 1, "the short reading waits for nobody"
    assert ended == ["one", "two"]
    # 5 pieces of 20 tokens and 10 of 10 tokens of two rows
    assert [sorted(forward) for forward in forwards] == [[2, 20]] * 15


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_a_prompt_read_in_pieces_leaves_the_bits_of_one_read_at_once(
    model: LanguageModel, piece: int
) -> None:
    prompt = [5 + place % 300 for place in range(150)]
    whole = PrefixCache.behind(rows(model, 0, 1), prompt, START)
    found: list[Any] = []
    shared = Batch()
    shared.add(Reader.reading_prompt(rows(model, 0, 1), prompt, START), found.append)
    while len(shared):
        shared.step(piece)
    assert bits(read_alone(along(found[0], [7, 8], 0))) == bits(read_alone(along(whole, [7, 8], 0)))


def test_errors_and_preemptions_reach_those_they_belong_to(model: LanguageModel) -> None:
    alone = bits(read_alone(along(*sessions(model)[1])))
    made = sessions(model)
    stopped = Preemption()
    found: dict[str, Any] = {}
    shared = Batch()

    def keep(name: str) -> Any:
        return lambda result: found.update({name: result})

    shared.add(along(*made[1]), keep("right"))
    shared.add(along(made[0][0], [10**6], 1), keep("wrong"))
    shared.add(made[3][0].reading(made[3][1], named(made[3][1]), 90, stopped), keep("stopped"))
    shared.add(Reader.reading_prompt(rows(model, 0), [], START), keep("empty"))
    stopped.request()
    while len(shared):
        shared.step()
    assert bits(found["right"]) == alone
    assert isinstance(found["wrong"], ModelError)
    assert isinstance(found["stopped"], Preempted)
    assert isinstance(found["empty"], ModelError)
    with pytest.raises(ModelError):
        read_alone(Reader.reading_prompt(rows(model, 0), [], START))


def test_all_who_share_a_forward_get_its_error(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    shared = Batch()
    for session in sessions(model)[:2]:
        shared.add(along(*session), found.append)

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(batches, "advance", fail)
    shared.step()
    assert len(shared) == 0
    assert [type(error) for error in found] == [MemoryError, MemoryError]


def test_what_is_known_needs_no_forward(model: LanguageModel) -> None:
    reader = PrefixCache.behind(rows(model, 0), model.encode("Where?"), START)
    found: list[Any] = []
    shared = Batch()
    shared.add(along(reader, [], 0), found.append)
    assert len(shared) == 0
    assert bits(found[0]) == bits(reader.read([], [START], 0))
    shared.step()
