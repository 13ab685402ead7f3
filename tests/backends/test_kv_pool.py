"""Documents are in memory once, sessions cost what they write, and what is given back is free."""

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dragonrt.backends.backend import Document
from dragonrt.backends.kv_pool import KvPool, usual_limit
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import ModelError
from dragonrt.testing.backend_contract import numbers
from dragonrt.wire.reasons import BusyError, Reason

NAMES = ("printer", "ink")
TEXTS = ("The printer beeps twice when its ink is low. " * 9, "Spare ink is in the drawer. " * 4)
TOKENS = list(range(300, 330))


@pytest.fixture(scope="module")
def stored(model: LanguageModel) -> list[Document]:
    return [model.document_kv(model.encode(text)) for text in TEXTS]


@pytest.fixture(autouse=True)
def _only_by_counting_references() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_sessions_that_share_documents_say_what_each_says_alone(
    model: LanguageModel, stored: list[Document]
) -> None:
    pool = KvPool()
    shared = [pool.keep(*each) for each in zip(NAMES, stored, strict=True)]
    texts = [TOKENS, TOKENS[::-1], TOKENS[7:] + TOKENS[:7]]
    alone = [model.sequence(stored, 40).extend_all(text) for text in texts]
    sessions = [model.sequence(shared, 8, pool) for _ in texts]  # they have to grow, too
    for turn in zip(*texts, strict=True):
        for session, token in zip(sessions, turn, strict=True):
            session.extend([token])
    if model.exact_blocks:
        for session, expected in zip(sessions, alone, strict=True):
            session.truncate(len(TOKENS) - 1)
            last = session.extend([texts[sessions.index(session)][-1]])
            assert np.array_equal(numbers([last]), numbers(expected[-1:]))


def test_beyond_the_bound_a_side_is_busy(model: LanguageModel, stored: list[Document]) -> None:
    needed = KvPool()
    one = model.sequence(stored, 100, needed)
    pool = KvPool(2.5 * needed.used)
    first, second = (model.sequence(stored, 100, pool) for _ in range(2))
    for _ in range(3):
        with pytest.raises(BusyError) as busy:
            model.sequence(stored, 100, pool)
        assert busy.value.reason is Reason.BUSY
    expected = numbers([one.extend(TOKENS)])
    assert np.array_equal(numbers([second.extend(TOKENS)]), expected)  # nobody is pushed out
    del first
    after = model.sequence(stored, 100, pool).extend(TOKENS)
    assert np.array_equal(numbers([after]), expected)
    with pytest.raises(ModelError):
        model.sequence(stored, 800, pool)


def test_the_usual_bound_is_a_part_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = usual_limit(None)
    assert 2**26 < whole < 2**45
    container = tmp_path / "memory.max"
    monkeypatch.setattr("dragonrt.backends.kv_pool._CONTAINER", container)
    for text, limit in (("max\n", whole), ("400000000\n", 100_000_000)):
        container.write_text(text)
        assert usual_limit(None) == limit
