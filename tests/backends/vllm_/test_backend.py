"""What the backend does with an engine that fails, is stopped, or has no room: a fake one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from typing_extensions import override

from dragonrt.backends.backend import Feed, ModelInfo, Preemption
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.scheduler import Scheduler
from dragonrt.backends.transformers_.backend import TransformersTokenizer
from dragonrt.backends.vllm_.backend import VllmBackend
from dragonrt.backends.vllm_.checkpoint import read_options
from dragonrt.backends.vllm_.engine import Engine
from dragonrt.errors import ModelError
from dragonrt.testing.backend_contract import CountedPreemption
from tests.tiny_models import tokenizer

VOCABULARY = 261


class FakeEngine(Engine):
    """Predicts the number of a text's tokens, one request a step; `failing` steps raise."""

    def __init__(self) -> None:
        self.most_open, self.block_size, self.block_bytes = (3, 6), 8, 7
        self.lengths: dict[int, int] = {}  # of open requests, and of those that wait
        self.rows: dict[int, int] = {}
        self.open: set[int] = set()
        self.waiting: list[int] = []
        self.read: dict[int, int] = {}
        self.computed = 0
        self.failing: Exception | None = None

    @property
    @override
    def busy(self) -> bool:
        return bool(self.waiting)

    @override
    def add(self, key: int, tokens: list[int], stays: bool, rows: int = 1) -> None:
        self.rows[key] = rows
        self.lengths[key] = self.lengths.get(key, 0) + len(tokens)
        self.computed += len(tokens)
        self.waiting.append(key)
        self.open -= {key}
        self.open |= {key} if stays else set()

    @override
    def step(self) -> None:
        if self.failing is not None:
            raise self.failing
        key = self.waiting.pop(0)
        self.read[key] = self.lengths[key] if key in self.open else self.lengths.pop(key)

    @override
    def cut(self, key: int, length: int) -> bool:
        fits = self.lengths[key] // self.block_size * self.block_size <= length
        if fits:
            self.lengths[key] = length
        return fits

    @override
    def abort(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.lengths.pop(key, None)
        self.open -= set(keys)
        self.waiting = [key for key in self.waiting if key not in keys]

    @override
    def take(self, keys: Sequence[int]) -> list[list[tuple[torch.Tensor, ...]]]:
        found = list[list[tuple[torch.Tensor, ...]]]()
        for key in keys:
            ends = torch.arange(self.read[key] - self.rows[key], self.read[key]) + 1
            logits = torch.full((len(ends), VOCABULARY), -10.0)
            logits[torch.arange(len(ends)), ends] = 10.0
            found.append([(row.log_softmax(-1), row[:4]) for row in logits])
        return found


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def backend(engine: FakeEngine) -> VllmBackend:
    own = TransformersTokenizer(tokenizer())
    info = ModelInfo(
        parameters=1,
        fingerprint="",
        tokenizer_fingerprint=own.fingerprint,
        stop_tokens=(),
        vocabulary=VOCABULARY,
        context_length=20,
        device="cpu",
        device_memory=None,
        dtype="bfloat16",
        version="",
        engine="",
        exact_blocks=False,
    )
    return VllmBackend(engine, own, info)


def opened(backend: VllmBackend, *lengths: int) -> RowSet:
    documents = [backend.load({"tokens": np.zeros(n, np.int32)}) for n in lengths]
    return RowSet(backend, documents, 8)


def test_every_row_is_its_own_text(backend: VllmBackend) -> None:
    rows = opened(backend, 3, 0)
    found = rows.extend_all([5, 6])
    assert [
        [int(p.argmax()) for p in each.log_probabilities(np.arange(VOCABULARY))] for each in found
    ] == [[4, 1], [5, 2]]
    rows.truncate(1)
    assert rows.extend([9]).probability(5)[0] > 0.9
    assert rows.kv.document(0, 2).dump()["tokens"].tolist() == [5, 9]
    assert backend.pool.used == 28


def predicted(rows: RowSet, *tokens: int) -> list[int]:
    found = rows.extend(tokens).log_probabilities(np.arange(VOCABULARY))
    return [int(each.argmax()) for each in found]


def test_rows_that_go_on_compute_new_tokens_alone(backend: VllmBackend, engine: FakeEngine) -> None:
    rows = opened(backend, 3, 0)
    assert predicted(rows, 5) == [4, 1]
    engine.computed = 0
    assert predicted(rows, 6) == [5, 2]
    assert predicted(rows, 7, 8) == [7, 4]
    assert engine.computed == 6
    rows.truncate(2)
    assert predicted(rows, 9) == [6, 3]
    assert engine.computed == 8
    assert predicted(rows, 1, 2) == [8, 5]
    rows.truncate(2)  # the first row has filled a block of 8 tokens with others
    assert predicted(rows, 3) == [6, 3]
    assert engine.computed == 8 + 4 + 6 + 1
    assert len(engine.open) == 2


def test_open_requests_end_where_others_need_the_room(
    backend: VllmBackend, engine: FakeEngine
) -> None:
    first, second = opened(backend, 3, 0), opened(backend, 5)
    assert [predicted(first, 1), predicted(second, 1)] == [[4, 1], [6]]
    assert len(engine.open) == 3
    third = opened(backend, 7)
    assert predicted(third, 1) == [8]  # instead of those of `first`
    assert len(engine.open) == 2
    assert predicted(first, 2) == [5, 2]
    del first, second, third
    assert predicted(opened(backend, 1, 1, 1, 1), 1) == [2] * 4  # more than may stay open
    assert not engine.open


def test_an_engine_that_fails_is_not_asked_again(backend: VllmBackend, engine: FakeEngine) -> None:
    rows = opened(backend, 3)
    engine.failing = RuntimeError("out of memory\nand a traceback")
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            rows.extend([1])
        assert "\n" not in str(caught.value)
        engine.failing = None
    assert rows.length == 0


def test_a_stopped_feed_leaves_no_request(backend: VllmBackend, engine: FakeEngine) -> None:
    for checks in (1, 2, 3):
        dying, going = opened(backend, 1, 2), opened(backend, 3)
        feeds = [
            Feed(dying.kv, [1, 2], 0, True, CountedPreemption(checks), False),
            Feed(going.kv, [1], 0, True, Preemption(), False),
        ]
        stopped, found = backend.forward(feeds)
        assert stopped is None
        assert found is not None
        assert found[0].probability(4)[0] > 0.9
        assert not engine.busy


def test_what_is_too_long_is_refused_before_the_engine_sees_it(
    backend: VllmBackend, engine: FakeEngine
) -> None:
    rows = opened(backend, 18)
    with pytest.raises(ModelError):
        rows.extend([1, 2, 3])
    assert not engine.busy
    rows.extend([1, 2])


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_other_stored_documents_are_refused(backend: VllmBackend, dtype: type) -> None:
    with pytest.raises(ModelError):
        backend.load({"tokens": np.zeros(3, dtype)})
    with pytest.raises(ModelError):
        backend.open([backend.load({"tokens": np.full(3, VOCABULARY, np.int32)})], 8)


def test_options_are_engine_arguments_by_name() -> None:
    options = ["tensor-parallel-size=2", "quantization=fp8", "enforce_eager=true"]
    assert read_options(options) == {
        "tensor_parallel_size": 2,
        "quantization": "fp8",
        "enforce_eager": True,
    }
    with pytest.raises(ModelError):
        read_options(["quantization"])


@pytest.mark.parametrize(
    ("engine", "name", "options"),
    [
        ("nonsense", "dragon-small", {}),
        ("vllm", "dragon-small", {}),
        ("vllm", "a/b", {"device": "cuda"}),
        ("llama.cpp", "dragon-small", {"options": ("a=1",)}),
        ("transformers", "a/b", {"options": ("a=1",)}),
    ],
)
def test_what_an_engine_cannot_do_is_refused(
    engine: str, name: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ModelError):
        LanguageModel.load(name, engine=engine, **options)


def test_a_document_is_its_tokens_without_a_forward(
    backend: VllmBackend, engine: FakeEngine
) -> None:
    found: list[object] = []
    model = LanguageModel("fake", backend)
    request = model.prefill([3, 4], found.append, Preemption())
    scheduler = Scheduler(backend.info)
    scheduler.add(request)
    assert found == [backend.load({"tokens": np.array([3, 4], np.int32)})]
    assert not scheduler.requests
    assert engine.computed == 0
