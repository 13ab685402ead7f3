"""Documents are in memory once, sessions cost what they write, and what is given back is free."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from dragonrt.backends.backend import Document
from dragonrt.backends.kv_pool import KvPool, usual_limit
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_ import pages as paging
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.backends.torch_.pages import PAGE, Pages, SharedPages
from dragonrt.errors import ModelError
from dragonrt.testing.backend_contract import numbers
from dragonrt.wire.reasons import BusyError, Reason

NAMES = ("printer", "ink")
TEXTS = ("The printer beeps twice when its ink is low. " * 9, "Spare ink is in the drawer. " * 4)
TOKENS = list(range(300, 330))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux only")


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return LanguageModel.load("dragon-small", "cpu", request.param)


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
    alone = [model.rows(stored, 40).extend_all(text) for text in texts]
    sessions = [model.rows(shared, 8, pool) for _ in texts]  # they have to grow, too
    for turn in zip(*texts, strict=True):
        for session, token in zip(sessions, turn, strict=True):
            session.extend([token])
    if model.exact_blocks:
        for session, expected in zip(sessions, alone, strict=True):
            session.truncate(len(TOKENS) - 1)
            last = session.extend([texts[sessions.index(session)][-1]])
            assert np.array_equal(numbers([last]), numbers(expected[-1:]))


def test_a_document_is_in_memory_once(model: LanguageModel, stored: list[Document]) -> None:
    pool = KvPool()
    document = pool.keep("printer", stored[0])
    assert pool.document("printer") is pool.keep("printer", stored[0]) is document
    assert isinstance(document, DocumentKV)
    assert document.pages is not None
    sessions = [model.rows([document], 8, pool) for _ in range(2)]
    said = [numbers([session.extend([7])]) for session in sessions]
    document.pages.bytes.zero_()  # every session sees it: there is no other copy
    for session, before in zip(sessions, said, strict=True):
        session.truncate(0)
        assert not np.array_equal(numbers([session.extend([7])]), before)


def test_what_is_used_is_counted_and_given_back(
    model: LanguageModel, stored: list[Document]
) -> None:
    pool = KvPool()
    documents = [pool.keep(*each) for each in zip(NAMES, stored, strict=True)]
    together = sum(document.bytes for document in documents)
    assert pool.used == together
    assert together < 1.3 * sum(document.bytes for document in stored)
    first = model.rows(documents, 100, pool)
    own = pool.used - together
    second = model.rows(documents, 100, pool)
    assert pool.used == together + 2 * own
    token_bytes = stored[0].bytes // stored[0].length
    assert 2 * 100 * token_bytes < own < 3 * 100 * token_bytes
    del documents, first
    assert pool.used == together + own
    del second
    assert pool.used == 0
    assert pool.document("printer") is None


def test_beyond_the_bound_a_side_is_busy(model: LanguageModel, stored: list[Document]) -> None:
    needed = KvPool()
    one = model.rows(stored, 100, needed)
    pool = KvPool(2.5 * needed.used)
    first, second = (model.rows(stored, 100, pool) for _ in range(2))
    for _ in range(3):
        with pytest.raises(BusyError) as busy:
            model.rows(stored, 100, pool)
        assert busy.value.reason is Reason.BUSY
    expected = numbers([one.extend(TOKENS)])
    assert np.array_equal(numbers([second.extend(TOKENS)]), expected)  # nobody is pushed out
    del first
    after = model.rows(stored, 100, pool).extend(TOKENS)
    assert np.array_equal(numbers([after]), expected)
    with pytest.raises(ModelError):
        model.rows(stored, 800, pool)
    small = KvPool(needed.used + stored[0].bytes // 2)
    three = model.rows(stored, 100, small)
    with pytest.raises(BusyError):
        small.keep("printer", stored[0])
    del three
    assert small.keep("printer", stored[0]).is_shared


def test_what_never_fits_together_is_told_apart_from_what_must_wait(
    model: LanguageModel, stored: list[Document]
) -> None:
    needed = KvPool()
    shared = [needed.keep(str(place), each) for place, each in enumerate(stored)]
    documents = needed.used
    if not documents:
        pytest.skip("this system shares no pages")
    session = model.rows(shared, 100, needed)
    pool = KvPool(needed.used - 1)
    del session
    held = [pool.keep("0", stored[0])]
    held += [pool.keep(str(place), each, held) for place, each in enumerate(stored[1:], start=1)]
    with pytest.raises(ModelError):
        model.rows(held, 100, pool)
    small = KvPool(documents - 1)
    held = [small.keep(str(place), each) for place, each in enumerate(stored[:-1])]
    with pytest.raises(ModelError):
        small.keep("last", stored[-1], held)


def test_memory_that_is_reserved_costs_nothing_before_it_is_written() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    before = resident()
    pages = Pages(2**34, torch.device("cpu"))
    pages.bytes[2**33 : 2**33 + 10 * PAGE] = 1
    assert int(pages.bytes[2**32 : 2**32 + 2**20].max()) == 0
    assert resident() - before < 2**21


def test_what_cannot_be_shown_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedPages(4 * PAGE)
    shared.bytes.copy_(torch.arange(4 * PAGE) % 251)
    monkeypatch.setattr(paging, "_MOST_SHOWN", paging._Shown.number + 1)
    pages = [Pages(8 * PAGE, torch.device("cpu")) for _ in range(3)]
    size = 2 * PAGE + 100
    for each, at in zip(pages, (PAGE, PAGE, PAGE + 1), strict=True):  # the last begins no page
        each.show(shared, PAGE, size, at)
        assert torch.equal(each.bytes[at : at + size], shared.bytes[PAGE : PAGE + size])
        assert not each.bytes[at + size :].any()


def test_where_nothing_can_be_shared_each_session_has_a_copy(
    model: LanguageModel, stored: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = numbers([model.rows(stored, 40).extend(TOKENS)])
    monkeypatch.setattr(paging, "_works", lambda: False)
    pool = KvPool()
    documents = [pool.keep(*each) for each in zip(NAMES, stored, strict=True)]
    assert pool.used == 0
    session = model.rows(documents, 40, pool)
    assert pool.used > sum(document.bytes for document in stored)
    assert np.array_equal(numbers([session.extend(TOKENS)]), expected)


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
