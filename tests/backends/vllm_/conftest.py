"""A tiny model in vLLM itself, where that is installed."""

from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from tests.tiny_models import saved, tiny

SIZES = {"hidden_size": 128, "head_dim": 32, "max_position_embeddings": 192}
OPTIONS = ("kv_cache_memory_bytes=33554432",)


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tiny("llama", **SIZES), tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="session")
def model(directory: Path) -> LanguageModel:
    pytest.importorskip("vllm")
    return LanguageModel.load(directory, dtype="bfloat16", engine="vllm", options=OPTIONS)
