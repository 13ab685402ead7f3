"""The contract on vLLM itself: `scripts/test-vllm` runs it where vLLM is installed."""

from pathlib import Path

import pytest

pytest.importorskip("vllm")

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import ModelError
from dragonrt.testing.backend_contract import CHECKS, TOLERANCE, Subject, numbers

from .conftest import SIZES


@pytest.fixture(scope="module")
def subject(model: LanguageModel) -> Subject:
    return Subject(model.backend)


@pytest.mark.parametrize("check", CHECKS)
def test_contract(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)


def test_it_describes_itself_as_transformers_does(model: LanguageModel, directory: Path) -> None:
    info, other = model.backend.info, LanguageModel.load(directory, "cpu").backend.info
    assert info.tokenizer_fingerprint == other.tokenizer_fingerprint
    assert (info.vocabulary, info.parameters) == (other.vocabulary, other.parameters)
    assert info.stop_tokens == other.stop_tokens
    assert info.kv_memory is not None
    assert 0 < info.kv_memory <= 33554432


@pytest.mark.parametrize("option", ["nonsense=1", "model=x", "block_size", "block_size=7"])
def test_an_argument_that_vllm_refuses_is_one_line(directory: Path, option: str) -> None:
    with pytest.raises(ModelError) as caught:
        LanguageModel.load(directory, engine="vllm", options=[option])
    assert "\n" not in str(caught.value)


def test_rows_that_exceed_its_kv_take_turns(directory: Path, model: LanguageModel) -> None:
    before = model.backend.pool.used
    rows = model.rows([model.backend.empty()], 1)
    block = model.backend.pool.used - before
    del rows
    longest, beside = -(-SIZES["max_position_embeddings"] // 32), 2

    def load(blocks: int) -> LanguageModel:
        options = [f"kv_cache_memory_bytes={block * blocks}"]
        return LanguageModel.load(directory, dtype="bfloat16", engine="vllm", options=options)

    small = load(longest + beside)

    def found(by: LanguageModel) -> NDArray[np.float32]:
        rows = Subject(by.backend).opened((61, 61, 37, 120, 61))
        return numbers([*rows.extend_all([5, 6, 7]), rows.extend([8]), rows.extend([9])])

    wanted = found(model)
    np.testing.assert_allclose(found(small), wanted, atol=TOLERANCE * np.abs(wanted).max())
    with pytest.raises(ModelError) as caught:
        load(2)
    assert "\n" not in str(caught.value)
