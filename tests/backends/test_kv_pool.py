"""Sessions reserve the memory that they may write, and what they give back is free."""

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

TEXTS = ("The printer beeps twice when its ink is low. " * 9, "Spare ink is in the drawer. " * 4)
TOKENS = list(range(300, 330))


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load("dragon-small")


@pytest.fixture(scope="module")
def stored(model: LanguageModel) -> list[Document]:
    return [model.document_kv(model.encode(text)) for text in TEXTS]


@pytest.fixture(autouse=True)
def _only_by_counting_references() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_what_is_used_is_counted_and_given_back(
    model: LanguageModel, stored: list[Document]
) -> None:
    pool = KvPool()
    first = model.rows(stored, 100, pool)
    one = pool.used
    second = model.rows(stored, 100, pool)
    assert pool.used == 2 * one > 0
    del first
    assert pool.used == one
    del second
    assert pool.used == 0


def test_beyond_the_bound_a_side_is_busy(model: LanguageModel, stored: list[Document]) -> None:
    needed = KvPool()
    one = model.rows(stored, 100, needed)
    pool = KvPool(2 * needed.used)
    first, second = (model.rows(stored, 100, pool) for _ in range(2))  # all of it
    for _ in range(3):
        with pytest.raises(BusyError) as busy:
            model.rows(stored, 100, pool)
        assert busy.value.reason is Reason.BUSY
    expected = numbers([one.extend(TOKENS)])
    assert np.array_equal(numbers([second.extend(TOKENS)]), expected)  # nobody is pushed out
    del first
    assert np.array_equal(numbers([model.rows(stored, 100, pool).extend(TOKENS)]), expected)
    with pytest.raises(ModelError):
        model.rows(stored, 100, KvPool(needed.used - 1))


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
