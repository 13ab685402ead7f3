"""`dragonrt keys`, `index` and `model`: what they make, leave out and say."""

import io
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dragonrt import bundled
from dragonrt.backends.llama_cpp import model_file
from dragonrt.link.shared_key import new_key, read_key, renewal
from dragonrt.link.tls import last_day
from dragonrt.node.connections.addresses import NetworkSettings
from tests.certificates import make_certificates

Run = Callable[..., Any]


def test_a_key_is_made_shown_and_entered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keys", "new").code == 0
    shown = run("keys", "show")
    assert shown.code == 0
    line = shown.output.splitlines()[-1]
    assert re.fullmatch(r"(\w{4}-){7}\w{4}", line)
    assert "█" in shown.output
    monkeypatch.setattr(sys, "stdin", io.StringIO(line.upper() + "\n"))
    assert run("keys", "enter", "other").code == 0
    assert read_key(Path("other")) == read_key(Path("dragonrt.key")) == line.encode()


def test_a_settings_file_has_a_table_for_each_command_of_keys(run: Run) -> None:
    Path("dragonrt.toml").write_text("[keys.new]\ndays = 31\n[keys.show]\nfile = 'other'\n")
    assert run("keys", "new", "other").code == 0
    ends = renewal(read_key(Path("other")))
    assert ends is not None
    assert ends <= datetime.now(UTC).date() + timedelta(days=31)
    assert run("keys", "show").code == 0


def test_mistakes_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragonrt.key").write_text("f" * 64)
    assert "exists and is left as it is" in run("keys", "new").line
    assert "copy the file instead" in run("keys", "show").line
    assert "--days is at most" in run("keys", "new", "k", "--days", "1000000").line
    assert "openssl" in run("keys", "new", "--tls", "t").line
    monkeypatch.setattr(sys, "stdin", io.StringIO("zzzz\n"))
    assert "mistyped" in run("keys", "enter", "k").line
    assert not Path("k").exists()


def test_what_ends_soon_is_warned_of(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    end = last_day(tmp_path / "cloud.pem")
    (tmp_path / "key").write_text(new_key(end))
    network = NetworkSettings(
        key_file=tmp_path / "key",
        tls_cert=tmp_path / "cloud.pem",
        tls_key=tmp_path / "cloud.key",
        tls_ca=tmp_path / "authority.pem",
    )
    renew = end.replace(day=1)
    key, *certificates = network.expiring(renew)
    assert f"renew this key before {renew}" in key
    assert [line.split(": ")[1] for line in certificates] == [f"this certificate ends on {end}"] * 2
    assert network.expiring(renew - timedelta(days=30)), "the last day without a warning is over"
    assert network.expiring(renew - timedelta(days=45)) == []


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
