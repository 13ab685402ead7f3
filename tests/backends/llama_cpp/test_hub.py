"""GGUF files of the hub, fetched from a stand-in that listens on this machine."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from typing_extensions import override

from dragonrt import bundled
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.llama_cpp.hub import HubFile
from dragonrt.backends.llama_cpp.model_file import file_of
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import ModelError
from retrieval import RetrievalError

TOY = bundled.model_path("dragon-small")
COMMIT = "c" * 40


@dataclass
class Hub:
    """The answers that huggingface_hub asks for; `cut` bodies end in their middle."""

    repositories: dict[str, dict[str, bytes]]
    gated: frozenset[str] = frozenset()
    cut: int = 0
    gets: list[tuple[str, str | None]] = field(default_factory=list)

    def listing(self, repository: str) -> bytes:
        names = [{"rfilename": name} for name in self.repositories[repository]]
        return json.dumps({"id": repository, "sha": COMMIT, "siblings": names}).encode()

    def handler(hub) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (self is the handler's)
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(body=True)

            def do_HEAD(self) -> None:
                self._reply(body=False)

            def _reply(self, body: bool) -> None:
                parts = self.path.partition("?")[0].strip("/").split("/")
                is_list = parts[:2] == ["api", "models"]
                repository, name = "/".join(parts[2 * is_list :][:2]), "/".join(parts[4:])
                if repository in hub.gated and not is_list:
                    return self._refuse(403, "GatedRepo")
                if repository not in hub.repositories:
                    return self._refuse(401, "RepoNotFound")
                if is_list:
                    return self._send(hub.listing(repository), {}, body)
                data = hub.repositories[repository][name]
                if body:
                    hub.gets.append((name, self.headers["Range"]))
                about = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
                return self._send(data, about, body)

            def _send(self, data: bytes, about: dict[str, str], body: bool) -> None:
                first = int((self.headers["Range"] or "bytes=0-")[6:].partition("-")[0])
                self.send_response(206 if first else 200)
                about["Content-Length"] = str(len(data) - first)
                if first:
                    about["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
                for key, value in about.items():
                    self.send_header(key, value)
                self.end_headers()
                if not body:
                    return
                if hub.cut and about.get("ETag"):
                    hub.cut, data = hub.cut - 1, data[: len(data) // 2]
                    self.close_connection = True
                self.wfile.write(data[first:])

            def _refuse(self, status: int, code: str) -> None:
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            @override
            def log_message(self, *_: Any) -> None: ...

        return Handler


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    toy = TOY.read_bytes()
    others = ("toy-Q4_K_S.gguf", "toy-UD-Q4_K_M.gguf", "mmproj-toy-Q8_0.gguf", "README.md")
    parts = ("big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf")
    found = Hub(
        {
            "some/toy-GGUF": {"q8/toy-q8_0.gguf": toy, **dict.fromkeys(others, b"GGUF")},
            "some/parts": dict.fromkeys(parts, b"GGUF"),
            "some/gated": {"toy-Q4_K_M.gguf": b"GGUF"},
        },
        gated=frozenset({"some/gated"}),
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), found.handler())
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    address, names = f"http://127.0.0.1:{server.server_port}", huggingface_hub.constants
    monkeypatch.setattr(names, "ENDPOINT", address)
    urls = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(names, "HUGGINGFACE_CO_URL_TEMPLATE", urls)
    monkeypatch.setattr(names, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield found
    server.shutdown()
    serving.join()
    server.server_close()


def refused(name: str) -> str:
    with pytest.raises(ModelError) as caught:
        file_of(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hf.co/some/toy-GGUF:Q8_0", HubFile("some/toy-GGUF", "Q8_0")),
        ("https://huggingface.co/some/toy-GGUF", HubFile("some/toy-GGUF", "Q4_K_M")),
        ("some/toy-GGUF:toy-q8_0.gguf", HubFile("some/toy-GGUF", "toy-q8_0.gguf")),
        *((name, None) for name in ("some/model", "models/toy.gguf", "C:/toy.gguf", "smollm2")),
    ],
)
def test_names_are_those_of_llama_cpp_and_ollama(name: str, meant: HubFile | None) -> None:
    assert HubFile.parse(name) == meant


def test_a_file_is_fetched_once(hub: Hub) -> None:
    model = LanguageModel.load("hf.co/some/toy-GGUF:Q8_0")
    assert model.parameters == 5_786_368
    assert hub.gets == [("q8/toy-q8_0.gguf", None)]
    hub.repositories.clear()  # what is kept needs no hub
    assert file_of("some/toy-GGUF:toy-Q8_0.gguf") == file_of("hf.co/some/toy-GGUF:Q8_0")
    assert len(hub.gets) == 1


def test_a_broken_connection_is_resumed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 2**20)
    hub.cut = 1
    assert file_of("some/toy-GGUF:Q8_0").read_bytes() == TOY.read_bytes()
    assert [asked for _, asked in hub.gets] == [None, f"bytes={3 * 2**20}-"]


def test_a_quant_is_that_of_a_whole_model(hub: Hub) -> None:
    assert file_of("hf.co/some/toy-GGUF").name == "toy-UD-Q4_K_M.gguf"
    assert file_of("some/toy-GGUF:q4_k_s").name == "toy-Q4_K_S.gguf"


def test_what_cannot_be_fetched_is_one_line_with_a_remedy(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refused("some/toy-GGUF:Q4_K")
    assert "q8/toy-q8_0.gguf, toy-Q4_K_S.gguf, toy-UD-Q4_K_M.gguf" in line
    assert "some/nothing" in refused("some/nothing:Q8_0")
    assert "some/parts" in refused("some/parts:Q8_0")
    assert f"{huggingface_hub.constants.ENDPOINT}/some/gated" in refused("some/gated:Q4_K_M")
    assert hub.gets == []
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    assert "some/toy-GGUF:Q4_K_S" in refused("some/toy-GGUF:Q4_K_S")


def test_an_embedder_may_be_there_too(hub: Hub) -> None:
    with pytest.raises(RetrievalError):  # a language model
        load_embedder("some/toy-GGUF:Q8_0")
    assert [name for name, _ in hub.gets] == ["q8/toy-q8_0.gguf"]


def test_a_command_says_once_that_it_fetches(
    hub: Hub, run: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("Tea at five.")
    asked = ("index", "note.txt", "--kv", "--model", "some/toy-GGUF:Q8_0")
    lines = [run(*asked).errors.splitlines()[0] for _ in range(2)]
    assert "some/toy-GGUF:Q8_0" in lines[0]
    assert "some/toy-GGUF:Q8_0" not in lines[1]
