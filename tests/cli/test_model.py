"""`dragonrt model`: files for other programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonrt import bundled
from dragonrt.backends.llama_cpp import model_file

Run = Callable[..., Any]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in model_file.MADE:
        file = tmp_path / f"{name}.made"
        file.write_text(name)
        monkeypatch.setitem(model_file.MADE, name, lambda show, file=file: file)


@pytest.mark.usefixtures("made")
def test_a_file_is_written(run: Run, tmp_path: Path) -> None:
    assert run("model", "build", "reader.gguf").code == 0
    assert run("model", "build", "draft.gguf", "--draft").code == 0
    assert (tmp_path / "reader.gguf").read_text() == bundled.SMOLLM2
    assert (tmp_path / "draft.gguf").read_text() == bundled.SMOLLM2_DRAFT
    assert "none/x.gguf" in run("model", "build", "none/x.gguf").line


def test_it_needs_the_wheel(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "smollm2_file", lambda: None)
    assert bundled.SMOLLM2_WHEEL in run("model", "build", "x.gguf").line
