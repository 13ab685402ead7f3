"""The libraries that are installed, and the bundled files."""

from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.backends.llama_cpp.library import installed
from dragonrt.backends.llama_cpp.model_file import reader_file


@pytest.fixture(scope="session", params=["xllamacpp", "llama_cpp"])
def library(request: pytest.FixtureRequest) -> Path:
    """Every library that the program knows: the wheel's, and the one compiled here."""
    return installed(request.param) or pytest.skip(f"{request.param} is not installed")


@pytest.fixture(scope="session", params=["dragon-draft", bundled.SMOLLM2])
def file(request: pytest.FixtureRequest) -> Path:
    """A toy's file, and the reader's."""
    if request.param in bundled.models():
        return bundled.model_path(request.param)
    if bundled.smollm2_file() is None:
        pytest.skip(f"{bundled.SMOLLM2_WHEEL} is not installed")
    return reader_file()
