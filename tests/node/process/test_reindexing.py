"""The process that indexes beside a side: it dies, and is started again."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.node.process import reindexing
from dragonrt.node.process.composition import Loaded, complete_library, local_side
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.http.private_documents import PrivateDocuments, with_uploads
from retrieval import Report
from retrieval.following import Order

pytestmark = pytest.mark.slow
BOUND_S = 300.0  # this machine may be busy
ON_LINUX = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="Linux tells the children"
)


def children() -> list[int]:
    """The processes that this one has started."""
    found: list[int] = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found += map(int, (task / "children").read_text().split())
    return found


def posted(data: bytes) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


@ON_LINUX
async def test_a_dead_watcher_restarts_without_anybody_waiting(
    draft_model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reindexing, "FIRST_WAIT_S", 1.0)
    reports: asyncio.Queue[Report | DragonError] = asyncio.Queue()
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "ferry.txt").write_text("The ferry leaves at nine.")
    settings = with_uploads(
        SideSettings(
            "device", model="dragon-draft", on="cpu", documents=(documents,), index=tmp_path / "i"
        ),
        documents / "dropped",
    )
    private = PrivateDocuments(settings.documents, documents / "dropped")

    def updated(report: Report | DragonError) -> None:
        private.report(report)
        reports.put_nowait(report)

    library = complete_library(settings, draft_model, kv=False)
    before = set(children())
    async with (
        local_side(Loaded(settings, draft_model, library, updated)) as side,
        asyncio.timeout(BOUND_S),
    ):
        following = side.following
        assert following is not None
        assert await private.add(side, "a.txt", posted(b"The bus is yellow.")) == {
            "name": "a.txt",
            "indexed": True,
        }
        while not reports.empty():
            reports.get_nowait()
        (watcher,) = set(children()) - before
        os.kill(watcher, signal.SIGKILL)
        assert isinstance(await reports.get(), DragonError)
        assert following.stopped
        said = await private.add(side, "b.txt", posted(b"The tram is red."))
        assert said == {"name": "b.txt", "indexed": False, "reason": following.stopped}
        report = await reports.get()
        assert isinstance(report, Report), "it is started again, and takes up what it missed"
        assert report.added == 1
        assert (following.stopped, following.restarts) == ("", 1)
        name = os.fsdecode(b"t\xffm.txt")
        (documents / "dropped" / name).write_text("Tom is away.")
        while "dropped/t\\xffm.txt" not in (files := await _files(side)):
            assert following.restarts == 1, "no name of a file ends it"
            await reports.get()
        listing = await private.listing(side)
        assert {"name": "dropped/t\\xffm.txt", "upload": "t\\xffm.txt"} in listing["files"]
        assert await private.delete(side, "t\\xffm.txt") == {"name": "t\\xffm.txt", "deleted": True}
        assert "dropped/t\\xffm.txt" in files
        assert "dropped/t\\xffm.txt" not in await _files(side)
    assert set(children()) == before


async def _files(side: LocalSide) -> dict[str, str]:
    library = side.library
    assert library is not None
    return await side.librarian.call(lambda: library.retriever.index.files())


async def test_what_cannot_be_watched_is_said_at_once(
    draft_model: LanguageModel, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("The ferry leaves at nine.")
    settings = SideSettings(
        "device", model="dragon-draft", on="cpu", documents=(tmp_path,), index=tmp_path / ".i"
    )
    library = complete_library(settings, draft_model, kv=False)
    gone = replace(settings, documents=(tmp_path / "gone" / "a.txt",), watch=True)
    with pytest.raises(DragonError):
        async with local_side(Loaded(gone, draft_model, library)):
            pass


@pytest.mark.parametrize("script", ["printf '{\"torn'", "exit 1", "echo '{}'", "echo 1"])
async def test_a_process_that_writes_no_report_has_ended(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", _program(tmp_path, f"read order\n{script}"))
    reports: asyncio.Queue[Report | DragonError] = asyncio.Queue()
    async with asyncio.timeout(BOUND_S), _reindexing(tmp_path, reports.put_nowait) as following:
        assert isinstance(await reports.get(), DragonError)
        assert following.stopped


async def test_the_process_is_told_when_answers_begin_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    os.mkfifo(lines)
    script = f"exec 3> {lines}\nread order\nwhile read line; do echo $line >&3; done"
    monkeypatch.setattr("sys.executable", _program(tmp_path, script))
    thread: Any = SimpleNamespace(busy=True)
    async with asyncio.timeout(BOUND_S), _reindexing(tmp_path, lambda report: None, thread):
        with await asyncio.to_thread(lines.open) as said:
            assert await asyncio.to_thread(said.readline) == "true\n"
            for busy in (False, True):
                thread.on_busy(busy)
                assert json.loads(await asyncio.to_thread(said.readline)) is busy


@ON_LINUX
async def test_a_process_that_does_not_end_outlives_no_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    script = f"trap '> {told}' TERM\nread order\nprintf '{{\"torn'\nexec >&-\n"
    monkeypatch.setattr(
        "sys.executable", _program(tmp_path, f"{script}while :; do sleep 0.1; done")
    )
    before = set(children())
    async with asyncio.timeout(BOUND_S), _reindexing(tmp_path, lambda report: None):
        while not told.exists():  # noqa: ASYNC110 (a file comes)
            await asyncio.sleep(0.001)
    assert set(children()) == before


def _program(folder: Path, script: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@asynccontextmanager
async def _reindexing(
    folder: Path, on_report: reindexing.OnReport, thread: Any = None
) -> AsyncIterator[reindexing.IndexingState]:
    options: Any = {"exclude": ()}
    order = Order([str(folder)], str(folder / "i"), "words", watch=True, options=options)
    library: Any = SimpleNamespace(left="")
    thread = thread or SimpleNamespace(busy=False)
    following = reindexing.IndexingState()
    async with reindexing.reindexing(order, library, thread, on_report, following, None):
        yield following
