"""Implements the contract of a backend by llama.cpp."""

from pathlib import Path

from dragonrt.backends.backend import Backend
from dragonrt.errors import ModelError


def load_model(
    path: Path, *, name: str, threads: int | None, adapter: Path | None, library: Path | None
) -> Backend:
    """Load a GGUF file. Raises ModelError."""
    raise ModelError(f"{path} cannot be run yet")
