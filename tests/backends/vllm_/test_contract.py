"""The contract on vLLM itself: `scripts/test-vllm` runs it where vLLM is installed."""

from pathlib import Path

import pytest

pytest.importorskip("vllm")

from collections.abc import Callable

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import ModelError
from dragonrt.testing.backend_contract import CHECKS, Subject
from tests.tiny_models import saved, tiny

SIZES = {"hidden_size": 128, "head_dim": 32, "max_position_embeddings": 192}
OPTIONS = ("kv_cache_memory_bytes=33554432",)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tiny("llama", **SIZES), tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def model(directory: Path) -> LanguageModel:
    return LanguageModel.load(directory, dtype="bfloat16", engine="vllm", options=OPTIONS)


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
