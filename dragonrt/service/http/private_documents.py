"""A device's documents over HTTP: list and read them, upload files to a directory, delete these."""

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request

from dragonrt import bundled
from dragonrt.errors import DragonError
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.http.api_request import ApiError
from dragonrt.service.http.web_server import bounded
from retrieval import DocumentError, Index, Report
from retrieval.documents import SUFFIXES
from retrieval.files import create, escaped, make_directory
from retrieval.ingestion import content_hash, index_name

T = TypeVar("T")

LARGEST_FILE = 64 * 1024 * 1024
LONGEST_NAME = 200
LISTED = 500
"""The most names in a list, which also has the number of all."""
AROUND = 20
"""The chunks before and behind a place of a document that are shown with it."""
EXAMPLES = 3
"""Questions that are shown for the sample documents."""
UNREADABLE = "unreadable"
READ_S = 60.0
"""Seconds after which an upload is answered, even if the file is not indexed yet."""


def with_uploads(side: SideSettings, directory: Path | None) -> SideSettings:
    """Create `directory` for uploads; return settings that add it, and index changed documents.

    If it is None, returns `side`. DragonError if `side` has a store, or an index without documents.
    """
    if directory is None:
        return side
    if side.store is not None or (side.index is not None and not side.documents):
        raise DragonError("--uploads cannot extend this index: leave --store and --index out")
    try:
        make_directory(directory)
    except OSError as error:
        raise DragonError(f"cannot make {directory} for uploads: {error.strerror}") from None
    inside = any(directory.resolve().is_relative_to(each.resolve()) for each in side.documents)
    documents = side.documents if inside else (*side.documents, directory)
    return replace(side, documents=documents, watch=True)


class PrivateDocuments:
    """A device's documents over HTTP: all can be read, those in `uploads` added and deleted."""

    def __init__(self, documents: tuple[Path, ...], uploads: Path | None) -> None:
        self._documents = documents
        self._uploads = uploads
        self._reported = asyncio.Event()
        self._skipped: dict[str, str] = {}

    @property
    def changeable(self) -> bool:
        return self._uploads is not None

    def report(self, report: Report | DragonError) -> None:
        """Note the result of an index update, and wake requests that wait for one to finish."""
        if isinstance(report, Report):
            self._skipped = dict(report.skipped)
        self._reported.set()
        self._reported = asyncio.Event()

    async def listing(self, side: LocalSide) -> dict[str, Any]:
        """Return JSON: documents' names (uploads first), the #tags in them, file types to upload.

        `left` is a line on what is not yet indexed; `questions` are examples for bundled samples.
        """
        files = await asyncio.to_thread(self._uploaded) if self.changeable else {}
        uploaded = {index_name(self._documents, path): name for name, path in files.items()}
        names = sorted(await _contents(side), key=lambda name: (name not in uploaded, name))
        listed = [{"name": name, "upload": uploaded.get(name)} for name in names[:LISTED]]
        kinds = list(SUFFIXES) if self.changeable else []
        samples = {path.name for path in bundled.documents("device").iterdir()}
        known = samples <= {Path(name).name for name in names}
        texts = [each.text for each in bundled.questions() if each.kind == "private" and known]
        found = {"files": listed, "total": len(names), "kinds": kinds}
        left = side.library.left if side.library else ""
        tags = await _of_index(side, lambda index: index.store.tags()) or []
        return {**found, "tags": tags[:LISTED], "questions": texts[:EXAMPLES], "left": left}

    async def text(self, side: LocalSide, name: str, start: int) -> dict[str, Any]:
        """Return JSON: a document's chunks around the one that has the character at index `start`.

        Raises ApiError if there is no such document.
        """
        chunks = await _of_index(side, lambda index: index.store.chunks_of(name)) or []
        if not chunks:
            raise ApiError(404, f"there is no document {name!r}", code="unknown_document")
        here = max(sum(chunk.start <= start for chunk in chunks) - 1, 0)
        shown = chunks[max(0, here - AROUND) : here + AROUND + 1]
        pieces = [{"start": each.start, "page": each.page, "text": each.text} for each in shown]
        unread = await _of_index(side, lambda index: index.store.unread(name))
        more = len(chunks) - len(shown)
        return {"name": name, "chunks": pieces, "more": more, "unread": unread}

    async def add(self, side: LocalSide, name: str, request: Request) -> dict[str, Any]:
        """Store the body as the file `name`, and wait up to 60 s until the index has it.

        Returns JSON: `indexed` (bool) and, if False, the `reason`. Raises ApiError if the file
        cannot be stored or read; a former file of that name then stays.
        """
        plain = name.isprintable() and not {*"/\\"} & {*name} and not name.startswith(".")
        if not plain or not 1 <= len(name.encode()) <= LONGEST_NAME:
            raise ApiError(400, f"{name!r} is no name of a file", param="name")
        path = self._directory() / name
        if path.suffix.lower() not in SUFFIXES:
            raise ApiError(415, f"files of these kinds are read: {' '.join(SUFFIXES)}")
        own = secrets.token_hex(8)  # a name may be uploaded twice at once
        # Hidden: not yet a document, or none any more.
        unfinished, former = (path.with_name(f".{own}.{end}") for end in ("part", "former"))
        try:
            with create(unfinished) as file:
                async for piece in bounded(request, LARGEST_FILE):
                    await asyncio.to_thread(file.write, piece)
            content = await asyncio.to_thread(content_hash, unfinished)
            with contextlib.suppress(FileNotFoundError):  # no file had the name
                await asyncio.to_thread(shutil.copy, path, former)
            unfinished.replace(path)
            return {"name": name, **await self._updated(side, "indexed", path, content)}
        except OSError as error:
            raise ApiError(507, f"the file cannot be kept: {error.strerror}") from None
        except ApiError as error:
            if error.code == UNREADABLE:
                with contextlib.suppress(OSError, DocumentError):
                    if await asyncio.to_thread(content_hash, path) == content:  # no later upload
                        former.replace(path) if former.exists() else path.unlink()
            raise
        finally:
            for left in (unfinished, former):
                left.unlink(missing_ok=True)

    async def delete(self, side: LocalSide, name: str) -> dict[str, Any]:
        """Delete an upload, wait for the index; return JSON: `deleted` (bool), else a `reason`."""
        path = (await asyncio.to_thread(self._uploaded)).get(name)
        try:
            if path is None:
                raise FileNotFoundError
            path.unlink()
        except OSError:
            raise ApiError(404, f"there is no uploaded file {name!r}") from None
        return {"name": name, **await self._updated(side, "deleted", path, None)}

    async def _updated(
        self, side: LocalSide, what: str, path: Path, content: str | None
    ) -> dict[str, Any]:
        """Return whether the index has the file with that content, and why not. Raises ApiError."""
        name, following = index_name(self._documents, path), side.following
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while True:
                    reported = self._reported
                    if (await _contents(side)).get(name) == content:
                        return {what: True}
                    if following is not None and following.stopped:
                        return {what: False, "reason": following.stopped}
                    await reported.wait()
                    if following is not None and following.failed:
                        return {what: False, "reason": following.failed}
                    if content is not None and name in self._skipped:
                        raise ApiError(422, self._skipped[name], code=UNREADABLE)
        return {what: False, "reason": "it is not indexed yet: ask again later"}

    def _uploaded(self) -> dict[str, Path]:
        files = self._directory().iterdir()
        return {escaped(path.name): path for path in files if not path.name.startswith(".")}

    def _directory(self) -> Path:
        if self._uploads is None:
            raise ApiError(403, "documents cannot be changed here: start with --uploads DIR")
        return self._uploads


async def _contents(side: LocalSide) -> dict[str, str]:
    return await _of_index(side, lambda index: index.files()) or {}


async def _of_index(side: LocalSide, read: Callable[[Index], T]) -> T | None:
    """Return what is read of the side's index, None without documents."""
    library = side.library
    if library is None:
        return None
    return await side.librarian.call(lambda: read(library.retriever.index))
