"""`dragonrt index`: what it computes, leaves out and says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "ferry.txt").write_text("The ferry to Lund leaves at nine.")
    (folder / "museum.txt").write_text("The museum is closed on Mondays.")
    (folder / "run.log.txt").write_text("nothing happened\n")
    (folder / "large.txt").write_text("word " * 2000)
    return folder


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, ".docx"),
        ({"a.zip": b"PK", "b": b"\x7fELF\0", "c.zip": b"PK"}, ": .zip (none)"),
        ({"empty.txt": b" "}, "1 files could not be read"),
    ],
)
def test_a_lack_of_documents_is_said(
    run: Run, tmp_path: Path, files: dict[str, bytes], said: str
) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    outcome = run("index", str(folder), "--index", str(tmp_path / "index"))
    assert outcome.code == 1
    assert f"{folder}: no document" in outcome.errors
    assert said in outcome.errors


@pytest.mark.slow
def test_kv_is_computed_on_demand_and_bounded(run: Run, documents: Path, tmp_path: Path) -> None:
    where = tmp_path / "index"
    (tmp_path / "dragonrt.toml").write_text('[index]\nlargest-file = "5kB"\n')
    options = ("--index", str(where), "--exclude", "*.log.txt")
    outcome = run("index", str(documents), *options)
    assert outcome.code == 0
    assert "2 chunks of 2 files" in outcome.errors
    assert "skipped large.txt" in outcome.errors
    assert "run.log.txt" not in outcome.errors
    assert not (where / "kv").exists()
    with_kv = (*options, "--model", "dragon-draft", "--on", "cpu", "--kv")
    outcome = run("index", str(documents), *with_kv, "--kv-cache", "0")
    assert (outcome.code, outcome.errors.count("--kv-cache")) == (0, 1)
    assert list(where.rglob("*.safetensors")) == []
    assert run("index", str(documents), *with_kv).code == 0
    assert len(list(where.rglob("*.safetensors"))) == 2
