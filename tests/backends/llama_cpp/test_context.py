"""How many rows there is memory for, what they take, and which tokens are computed alone."""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE, run
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.backends.backend import Feed, Preemption
from dragonrt.backends.llama_cpp.backend import LlamaBackend, LlamaRows, load_model
from dragonrt.backends.llama_cpp.context import Context, lone_token_indices
from dragonrt.backends.llama_cpp.gguf_file import write_adapter
from dragonrt.backends.llama_cpp.library import LlamaModel, load_library
from dragonrt.backends.lora import Factors
from dragonrt.errors import DragonError, ModelError
from dragonrt.wire.reasons import BusyError

from .conftest import file_of

DRAFT = bundled.model_path("dragon-draft")
LONG = 800
TOKENS = [5, 80, 33, 104, 9, 80]
linux = pytest.mark.skipif(sys.platform != "linux", reason="it reads its memory from /proc")


@pytest.fixture
def on() -> Iterator[LlamaBackend]:
    gc.collect()
    gc.disable()  # rows are given back without it
    yield load_model(DRAFT, threads=1)
    gc.enable()


def read(on: LlamaBackend, rows: LlamaRows) -> NDArray[np.float32]:
    """The log-probabilities after each of the tokens."""
    (found,) = on.forward([Feed(rows, TOKENS, 0, True, Preemption(), False)])
    assert found is not None
    return np.stack([each.log_probabilities(np.arange(200)) for each in found])


def in_process(function: str, file: Path, number: int) -> Any:
    """What a function of `memory_of_rows` returns."""
    program = [sys.executable, "-m", "tests.backends.llama_cpp.memory_of_rows", function]
    done = run([*program, file, str(number)], check=True, stdout=PIPE)
    return json.loads(done.stdout)


def test_a_forward_has_more_rows_than_a_piece_has_tokens(on: LlamaBackend) -> None:
    opened = [on.open([on.empty()] * 60, 20) for _ in range(4)]
    feeds = [Feed(rows, [5, 6], 0, True, Preemption(), False) for rows in opened]
    assert [len(each or ()) for each in on.forward(feeds)] == [2] * 4
    with pytest.raises(ModelError):
        on.open([on.empty()] * 300, 20)


@pytest.mark.parametrize("block", [3, 4, 5])
def test_a_stopped_forward_leaves_no_gap_in_an_empty_row(on: LlamaBackend, block: int) -> None:
    last, _, _, first = rows = [on.open([on.empty()], 20) for _ in range(4)]
    assert [each.sequences[0] for each in rows] == [3, 2, 1, 0]
    stop = Preemption()
    stop.request()
    on.forward([Feed(row, TOKENS, 0, True, stop, False) for row in (first, last)])
    blocks = [TOKENS[:block], *([token] for token in TOKENS[block:])]
    found, length = list[NDArray[np.float32]](), 0
    for tokens in blocks:
        (logits,) = on.forward([Feed(last, tokens, length, True, Preemption(), False)])
        found += [each.log_probabilities(np.arange(200)) for each in logits or ()]
        length += len(tokens)
    np.testing.assert_array_equal(np.stack(found), read(on, on.open([on.empty()], 20)))


def test_a_model_and_its_context_in_a_circle_are_freed_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library, freed = load_library(None), list[str]()

    def free(name: str, call: Callable[[int], None], pointer: int) -> None:
        freed.append(name)
        call(pointer)

    for name in ("free", "model_free"):
        monkeypatch.setattr(library, name, partial(free, name, getattr(library, name)))
    model = LlamaModel(library, DRAFT)
    gc.collect()  # the collector now comes to the older one first
    context = Context(model, 1, 1, 20)
    gc.collect()
    circle: list[object] = [model, context]
    circle.append(circle)
    del model, context, circle
    freed.clear()
    gc.collect()
    assert freed == ["free", "model_free"]


def test_the_pool_counts_what_is_allocated(on: LlamaBackend) -> None:
    first, used = on.open([on.empty()], 20), on.pool.used
    second = on.open([on.empty()] * 2, 20)
    assert on.pool.used == used > 0, "a context has rows to spare"
    long = on.open([on.empty()], LONG)
    assert on.pool.used > 2 * used
    del first, second, long
    third = on.open([on.empty()], 20)
    assert on.pool.used == used, "what nobody uses is freed"
    del third


def test_rows_beyond_the_bound_wait_or_are_refused(on: LlamaBackend) -> None:
    many = [on.open([on.empty()], 20)]
    on.pool.limit = 3 * on.pool.used
    for rows, capacity in ((200, 20), (40, LONG)):
        with pytest.raises(ModelError):
            on.open([on.empty()] * rows, capacity)
    while len(many) < 100:
        try:
            many.append(on.open([on.empty()] * 2, 20))
        except BusyError:
            break
    assert 4 < len(many) < 100
    assert on.pool.used <= on.pool.limit
    many.pop()
    many.append(on.open([on.empty()] * 2, 20))
    many.clear()
    on.open([on.empty()], LONG)


def test_rows_without_memory_leave_the_others_alone(
    on: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = on.open([on.empty()] * 2, 20)
    wanted, used = read(on, rows), on.pool.used
    with monkeypatch.context() as patched:
        patched.setattr(load_library(None), "init_from_model", lambda *_: None)
        for count, capacity in ((1, LONG), (7, 20)):
            with pytest.raises(DragonError):
                on.open([on.empty()] * count, capacity)
        with pytest.raises(DragonError):
            rows.reserve(LONG)
        np.testing.assert_array_equal(read(on, rows), wanted)
        assert on.pool.used == used
    rows.reserve(LONG)
    np.testing.assert_array_equal(read(on, rows), wanted)


@linux
def test_a_process_without_memory_keeps_its_answers() -> None:
    found = in_process("starved", DRAFT, 100_000_000)
    assert found["made"] < 100
    assert found["kept"] == 4


@linux
@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("dragon-draft", 60_000_000),
        pytest.param(bundled.SMOLLM2, 300_000_000, marks=pytest.mark.slow),
    ],
)
def test_questions_of_any_length_keep_the_bound(name: str, bound: int) -> None:
    found = in_process("bounded", file_of(name), bound)
    assert 0.5 < found["taken"] < 1.2
    assert found["waited"] > 10
    assert found["refused"] < 10


def test_every_context_has_the_adapter(on: LlamaBackend, tmp_path: Path) -> None:
    draw = np.random.default_rng(1).standard_normal
    factors = Factors(draw((4, 256), np.float32), draw((256, 4), np.float32), 1.0)
    metadata = LlamaModel(load_library(), DRAFT).metadata
    layer = {"model.layers.0.self_attn.q_proj": factors}
    write_adapter(tmp_path / "lora.gguf", layer, metadata)
    changed = load_model(DRAFT, threads=1, adapter=tmp_path / "lora.gguf")
    rows = changed.open([changed.empty()], 20)
    wanted = read(changed, rows)
    assert not np.array_equal(wanted, read(on, on.open([on.empty()], 20)))
    others = [changed.open([changed.empty()], LONG if n == 7 else 20) for n in range(8)]
    rows.reserve(LONG)
    for each in (*others, rows):
        np.testing.assert_array_equal(read(changed, each), wanted)


@pytest.mark.parametrize(
    ("sequences", "alone"),
    [
        ([], []),
        ([3], [0]),
        ([3, 3], []),
        ([3, 4], []),
        ([3, 5], [0, 1]),
        ([4, 3], [0, 1]),
        ([0, 1, 0], [2]),
        ([0, 1, 0, 0], []),
        ([0, 0, 1, 1, 1], [4]),
        ([0, 1, 2, 0, 2], [3, 4]),
        ([0, 1, 2, 0, 1, 0], [5]),
        ([7, 0, 1, 0, 1], [0]),
        ([3, 5, 4, 5], [3]),
    ],
    ids=str,
)
def test_lone_tokens_of_a_batch(sequences: list[int], alone: list[int]) -> None:
    assert lone_token_indices(sequences) == alone
