"""Documents over HTTP: added, read, taken away; nothing beside them is touched."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from starlette.requests import Request
from starlette.types import Message

from dragonrt.errors import DragonError
from dragonrt.node.process.reindexing import IndexingState
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.http import private_documents
from dragonrt.service.http.api_request import ApiError
from dragonrt.service.http.private_documents import PrivateDocuments, with_uploads
from retrieval import Report
from retrieval.ingestion import content_hash

from .served import served, until


@dataclass(slots=True)
class WatchedSide:
    """Stands in for a side whose index is brought up to date when `update` is called."""

    directory: Path
    documents: PrivateDocuments | None = None
    known: dict[str, str] = field(default_factory=dict)
    unreadable: tuple[tuple[str, str], ...] = ()
    following: IndexingState = field(default_factory=IndexingState)
    chunks: Sequence[Any] = ()
    left: str = ""

    @property
    def library(self) -> Self:
        return self

    retriever = index = store = librarian = library
    tags = staticmethod(lambda: ["#plan"])

    async def call(self, job: Callable[[], Any]) -> Any:
        return job()

    def files(self) -> dict[str, str]:
        return self.known

    def chunks_of(self, name: str) -> Sequence[Any]:
        return self.chunks

    def unread(self, name: str) -> str:
        return "1 picture"

    def update(self) -> None:
        found = [path for path in self.directory.rglob("*") if path.is_file()]
        names = {path.relative_to(self.directory).as_posix(): path for path in found}
        skipped = [name for name, _ in self.unreadable]
        self.known = {n: content_hash(p) for n, p in names.items() if n not in skipped}
        assert self.documents is not None
        self.documents.report(Report(0, 0, 0, 0, self.unreadable, (), 0, 0, 1))


@pytest.fixture
def notes(tmp_path: Path) -> tuple[Path, Any]:
    """A directory with a note and one for uploads below it, and the side that reads it."""
    directory = tmp_path / "notes"
    directory.mkdir()
    (directory / "own.md").write_text("mine")
    uploads = directory / "dropped"
    settings = with_uploads(SideSettings("device", documents=(directory,)), uploads)
    assert settings.documents == (directory,)
    assert settings.watch
    side = WatchedSide(directory)
    side.documents = PrivateDocuments(settings.documents, uploads)
    side.update()
    return uploads, side


def pieces(*data: bytes) -> Request:
    left = [*data]

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return Request({"type": "http", "headers": []}, receive)


async def after_update(side: Any, change: Any) -> Any:
    """What a change comes to once the index was updated behind it."""
    changing = asyncio.ensure_future(change)
    uploads = side.directory / "dropped"
    before = sorted(uploads.glob("[!.]*"))
    await until(lambda: sorted(uploads.glob("[!.]*")) != before)
    assert not changing.done(), "it is not read yet"
    side.update()
    return await changing


async def stored(path: Path, content: bytes) -> None:
    await until(lambda: path.exists() and path.read_bytes() == content)


async def test_a_file_is_kept_read_listed_and_deleted(notes: tuple[Path, Any]) -> None:
    uploads, side = notes
    added = await after_update(side, side.documents.add(side, "a b.md", pieces(b"te", b"xt")))
    assert added == {"name": "a b.md", "indexed": True}
    assert (uploads / "a b.md").read_bytes() == b"text"
    listing = await side.documents.listing(side)
    assert listing["files"] == [
        {"name": "dropped/a b.md", "upload": "a b.md"},
        {"name": "own.md", "upload": None},
    ]
    assert ".pdf" in listing["kinds"]
    assert listing["tags"] == ["#plan"]
    deleted = await after_update(side, side.documents.delete(side, "a b.md"))
    assert deleted == {"name": "a b.md", "deleted": True}
    assert [path.name for path in uploads.iterdir()] == []


@pytest.mark.parametrize("former", [None, b"readable"])
async def test_an_unreadable_file_leaves_the_former_one(
    notes: tuple[Path, Any], former: bytes | None
) -> None:
    uploads, side = notes
    before = {} if former is None else {"x.pdf": former}
    for name, content in before.items():
        (uploads / name).write_bytes(content)
    side.unreadable = (("dropped/x.pdf", "is not a readable PDF file"),)
    adding = asyncio.ensure_future(side.documents.add(side, "x.pdf", pieces(b"nonsense")))
    await stored(uploads / "x.pdf", b"nonsense")
    side.update()
    with pytest.raises(ApiError) as error:
        await adding
    assert (error.value.status, error.value.code) == (422, "unreadable")
    assert {path.name: path.read_bytes() for path in uploads.iterdir()} == before


async def test_uploads_of_one_name_at_once_are_both_whole(notes: tuple[Path, Any]) -> None:
    uploads, side = notes
    gate, sent = asyncio.Event(), iter((b"fir", b"st"))

    async def slowly() -> Message:
        piece = next(sent)
        if piece == b"st":
            await gate.wait()
        return {"type": "http.request", "body": piece, "more_body": piece != b"st"}

    slow = Request({"type": "http", "headers": []}, slowly)
    first = asyncio.ensure_future(side.documents.add(side, "a.md", slow))
    for upload, content in (
        (asyncio.ensure_future(side.documents.add(side, "a.md", pieces(b"second"))), b"second"),
        (first, b"first"),
    ):
        await stored(uploads / "a.md", content)
        side.update()
        assert (await upload)["indexed"] is True
        gate.set()
    assert [path.name for path in uploads.iterdir()] == ["a.md"]


@pytest.mark.parametrize("name", ["../own.md", "a/b.md", ".hidden.md", "", "é" * 150, "a\nb.md"])
async def test_no_name_leads_out_of_the_directory(notes: tuple[Path, Any], name: str) -> None:
    uploads, side = notes
    for change, status in (
        (side.documents.add(side, name, pieces(b"x")), 400),
        (side.documents.delete(side, name), 404),
    ):
        with pytest.raises(ApiError) as error:
            await change
        assert error.value.status == status
    assert [*uploads.iterdir()] == []
    assert (uploads.parent / "own.md").read_text() == "mine"


async def test_large_and_other_files_are_refused(
    notes: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads, side = notes
    monkeypatch.setattr(private_documents, "LARGEST_FILE", 3)
    for name, status in (("a.md", 413), ("a.exe", 415)):
        with pytest.raises(ApiError) as error:
            await side.documents.add(side, name, pieces(b"xx", b"xx"))
        assert error.value.status == status
    assert [*uploads.iterdir()] == []
    with pytest.raises(ApiError) as error:
        await side.documents.delete(side, "own.md")
    assert error.value.status == 404


async def test_nobody_waits_for_an_update_that_failed(notes: tuple[Path, Any]) -> None:
    uploads, side = notes
    adding = asyncio.ensure_future(side.documents.add(side, "a.md", pieces(b"x")))
    await until((uploads / "a.md").exists)
    side.following.failed = "no room"
    async with asyncio.timeout(10):
        while not adding.done():
            side.documents.report(DragonError("no room"))
            await asyncio.sleep(0)
    assert adding.result() == {"name": "a.md", "indexed": False, "reason": "no room"}


async def test_files_are_deleted_by_the_names_that_are_listed(notes: tuple[Path, Any]) -> None:
    uploads, side = notes
    os.mkfifo(uploads / "pipe.md")
    (uploads / os.fsdecode(b"t\xff\nm.md")).write_text("bytes")
    side.known = {"dropped/t\\xff\\u000am.md": content_hash(uploads / os.fsdecode(b"t\xff\nm.md"))}
    ((listed),) = (await side.documents.listing(side))["files"]
    assert json.dumps(listed, ensure_ascii=False).encode()
    deleted = await after_update(side, side.documents.delete(side, listed["upload"]))
    assert deleted == {"name": "t\\xff\\u000am.md", "deleted": True}
    assert [path.name for path in uploads.iterdir()] == ["pipe.md"]


async def test_without_a_directory_nothing_changes(tmp_path: Path) -> None:
    documents = PrivateDocuments((), None)
    side: Any = WatchedSide(tmp_path, left="7 files")
    with pytest.raises(ApiError) as error:
        await documents.add(side, "a.md", pieces(b"x"))
    assert error.value.status == 403
    found = await documents.listing(side)
    assert (found["kinds"], found["left"]) == ([], "7 files")


@pytest.mark.parametrize(("start", "shown"), [(9, "01"), (10, "012"), (99, "23")])
async def test_a_document_is_shown_around_a_place(
    monkeypatch: pytest.MonkeyPatch, start: int, shown: str
) -> None:
    monkeypatch.setattr(private_documents, "AROUND", 1)
    chunks = [SimpleNamespace(start=10 * n, page=None, text=str(n)) for n in range(4)]
    side: Any = WatchedSide(Path(), chunks=chunks)
    found = await PrivateDocuments((), None).text(side, "a.md", start)
    assert "".join(each["text"] for each in found["chunks"]) == shown
    assert (found["more"], found["unread"]) == (len(chunks) - len(shown), "1 picture")


@pytest.mark.parametrize("problem", ["stopped", "failed"])
async def test_whether_changes_are_noticed_is_told(tmp_path: Path, problem: str) -> None:
    for uploads in (None, tmp_path):
        async with served({}, uploads=uploads) as service:
            following = service.side.following = IndexingState(restarts=2)
            told = (await service.http.get("/ready")).json()
            assert told["documents"] == {"problem": None, "restarts": 2}
            assert told["ready"]
            setattr(following, problem, "it died")
            answer = await service.http.get("/ready")
            assert answer.json()["documents"] == {"problem": "it died", "restarts": 2}
            assert (answer.status_code, answer.json()["ready"]) == (
                (200, True) if uploads is None else (503, False)
            )
            page = (await service.http.get("/metrics")).text
            assert f"dragonrt_watcher_alive {float(problem == 'failed')}" in page
            assert "dragonrt_watcher_restarts_total 2.0" in page


def test_a_directory_of_its_own_is_among_the_documents(tmp_path: Path) -> None:
    side = with_uploads(SideSettings("device"), tmp_path / "new")
    assert side.documents == (tmp_path / "new",)
    assert (tmp_path / "new").is_dir()
    with pytest.raises(DragonError):
        with_uploads(SideSettings("device", index=tmp_path), tmp_path / "new")
