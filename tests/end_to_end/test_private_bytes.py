"""What is private is in no log, and in no file that others can read, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.errors import DragonError
from dragonrt.service.cloud_process import listening_process
from retrieval import Index

WORDS = ("zibeline", "quarrion", "vellichor", "ombrosa")
"""In a document, in its title, in a question and in what is uploaded."""


@pytest.fixture(autouse=True)
def _nothing_is_masked() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def wide(*directories: Path) -> list[Path]:
    """What others can read."""
    found = [path for each in directories for path in (each, *each.rglob("*"))]
    assert len(found) > len(directories)
    return [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.slow
def test_real_processes_keep_it_to_themselves(tmp_path: Path) -> None:
    text, title, asked, uploaded = WORDS
    for side in ("device", "cloud"):
        (tmp_path / side).mkdir()
        note = f"# The {title} of the {side}\n\nThe {text} leaves at nine from the north quay.\n"
        (tmp_path / side / "note.md").write_text(note)
        (tmp_path / side / "broken.docx").write_text(f"The {text} is no document.")
        (tmp_path / side / "wrong.xlsx").write_bytes(b"PK\x03\x04" + text.encode())
    made = tmp_path / "made"
    common = ["dragonrt", "--verbose", "--config", os.devnull]
    model = ["--model", "dragon-draft", "--trace"]

    def documents(side: str) -> list[str]:
        return ["--documents", str(tmp_path / side), "--index", str(made / side)]

    make = ["--port", "0", *model, str(tmp_path / "cloud.trace"), *documents("cloud"), "--watch"]
    with listening_process(*common, "cloud", *make) as cloud:
        port = str(cloud.wait_ready())
        make = ["--port", port, *model, str(tmp_path / "device.trace"), *documents("device")]
        make += ["--uploads", str(made / "uploads"), "--http-port", "0"]
        with listening_process(*common, "serve", *make) as serve:
            url = f"http://127.0.0.1:{serve.wait_ready()}"
            with httpx2.Client(base_url=url, timeout=60) as client:
                put = client.put("/documents/new.md", content=f"The {uploaded} is red.".encode())
                assert put.json()["indexed"]
                body = {
                    "model": "dragon-draft",
                    "messages": [{"role": "user", "content": f"Where is the {asked}, {text}?"}],
                    "stream": True,
                }
                answer = client.post("/v1/chat/completions", json=body).text
                assert "[DONE]" in answer
                client.post("/v1/chat/completions", json={**body, "messages": asked})
    lines = [*cloud.lines, *serve.lines]
    assert any("skipped broken.docx" in line for line in lines)
    assert [line for line in lines if any(word in line for word in WORDS)] == []
    assert [line for line in lines if "chat.completion" in line] == [], "answers are private, too"
    assert wide(made) == []
    assert not wide(made / "device" / "kv"), "what was read is kept, too"
    for path in ("cloud.trace", "device.trace"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o600


def test_an_index_that_others_could_read_is_narrowed_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text("The ferry leaves at nine.")
    where = tmp_path / "made" / "index"
    Index.update(where, tmp_path / "a.txt", load_embedder())
    assert wide(tmp_path / "made") == []
    assert caplog.messages == []
    (where / "kv" / "model").mkdir(parents=True)
    for path in (where, *where.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    opened = Index.open(where)
    (line,) = caplog.messages
    assert "\n" not in line
    assert wide(where) == []
    del opened
    caplog.clear()
    Index.update(where, tmp_path / "a.txt", load_embedder())
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["pipe", "endless"])
def test_files_that_never_end_are_refused_at_once(tmp_path: Path, name: str) -> None:
    from dragonrt.backends.model import LanguageModel
    from dragonrt.backends.prompt import PromptTemplate
    from dragonrt.cli.options import SettingsFile
    from dragonrt.link.profile import LinkProfile
    from dragonrt.link.shared_key import read_key
    from dragonrt.link.tls import last_day, server_context
    from dragonrt.service.http.guard import ApiKeys
    from dragonrt.traces.file import read_trace

    path = tmp_path / f"{name}.toml"
    if name == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    from dragonrt.cli import app

    for read in (
        read_key,
        last_day,
        ApiKeys.read,
        read_trace,
        LanguageModel.load,
        PromptTemplate.read,
        lambda path: LinkProfile.load(str(path)),
        lambda path: server_context(path, path),
        lambda path: SettingsFile.read(path, app),
    ):
        with pytest.raises(DragonError) as caught:
            read(path)
        assert "\n" not in str(caught.value)
