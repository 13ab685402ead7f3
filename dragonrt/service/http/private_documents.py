"""Documents that are added and taken away over HTTP: files in a directory that is watched."""

import asyncio
import contextlib
from collections.abc import AsyncIterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.node.local_side import LocalSide
from dragonrt.node.side_settings import SideSettings
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.request_body import bounded
from retrieval import SUFFIXES, Report, content_hash, index_name
from retrieval.files import create, make_directory, shown

LARGEST_FILE = 64 * 1024 * 1024
LONGEST_NAME = 200
LISTED = 500
"""Names that a list tells; of more it tells the number."""
NOTHING = "nothing can be changed here: start with --uploads DIR"
READ_S = 60.0
"""An upload is answered after so long, whether or not the file is read by then."""


def with_uploads(side: SideSettings, directory: Path | None) -> SideSettings:
    """The side with that directory among its documents, which are watched; made if it is missing.

    Raises DragonError if it cannot be.
    """
    if directory is None:
        return side
    if side.store is not None or (side.index is not None and not side.documents):
        raise DragonError("--uploads needs an index of its own: give --documents, or nothing")
    try:
        make_directory(directory)
    except OSError as error:
        raise DragonError(f"cannot make {directory} for uploads: {error.strerror}") from None
    inside = any(directory.resolve().is_relative_to(each.resolve()) for each in side.documents)
    documents = side.documents if inside else (*side.documents, directory)
    return replace(side, documents=documents, watch=True)


class PrivateDocuments:
    """The documents of a side, of which those in `uploads` may be changed; none if it is None."""

    def __init__(self, settings: SideSettings, uploads: Path | None) -> None:
        self._documents = settings.documents
        self._uploads = uploads
        self._reported = asyncio.Event()
        self._skipped: dict[str, str] = {}

    @property
    def changeable(self) -> bool:
        """Whether files can be added and taken away."""
        return self._uploads is not None

    def heard(self, report: Report | DragonError) -> None:
        """An update of the index is over."""
        if isinstance(report, Report):
            self._skipped = dict(report.skipped)
        reported, self._reported = self._reported, asyncio.Event()
        reported.set()

    async def listing(self, side: LocalSide) -> dict[str, Any]:
        """What there is: names, under which of them a file can be taken away, and kinds taken."""
        names = sorted(await _contents(side))
        files = await asyncio.to_thread(self._uploaded) if self.changeable else {}
        uploaded = {self._name(path): name for name, path in files.items()}
        names.sort(key=lambda name: name not in uploaded)
        listed = [{"name": name, "upload": uploaded.get(name)} for name in names[:LISTED]]
        kinds = list(SUFFIXES) if self.changeable else []
        return {"files": listed, "total": len(names), "kinds": kinds}

    async def add(self, side: LocalSide, name: str, data: AsyncIterable[bytes]) -> dict[str, Any]:
        """Keep a file and wait until it is read. Raises ApiError for what cannot be."""
        path = self._path(name)
        if path.suffix.lower() not in SUFFIXES:
            raise ApiError(415, f"files of these kinds are read: {' '.join(SUFFIXES)}")
        unfinished = path.with_name(f".{name}.part")  # hidden: not yet a document
        try:
            with create(unfinished) as file:
                async for piece in bounded(data, LARGEST_FILE):
                    await asyncio.to_thread(file.write, piece)
            content = await asyncio.to_thread(content_hash, unfinished)
            unfinished.replace(path)
        except OSError as error:
            raise ApiError(507, f"the file cannot be kept: {error.strerror}") from None
        finally:
            unfinished.unlink(missing_ok=True)
        return {"name": name, **await self._over(side, "indexed", path, content)}

    async def delete(self, side: LocalSide, name: str) -> dict[str, Any]:
        """Take a file away, by its name as it is listed, and wait until nothing of it is found."""
        path = (await asyncio.to_thread(self._uploaded)).get(name)
        try:
            if path is None:
                raise FileNotFoundError
            path.unlink()
        except OSError:
            raise ApiError(404, f"there is no uploaded file {name!r}") from None
        return {"name": name, **await self._over(side, "deleted", path, None)}

    async def _over(
        self, side: LocalSide, what: str, path: Path, content: str | None
    ) -> dict[str, Any]:
        """Whether `what` is over: the index has the file with that content; else why it has not.

        Raises ApiError if the file cannot be read.
        """
        name, following = self._name(path), side.following
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
                        await asyncio.to_thread(path.unlink, missing_ok=True)
                        raise ApiError(422, self._skipped[name], code="unreadable")
        return {what: False, "reason": "it takes long: the index has it later"}

    def _uploaded(self) -> dict[str, Path]:
        """The uploaded files by their names as they are shown."""
        if self._uploads is None:
            raise ApiError(403, NOTHING)
        return {shown(p.name): p for p in self._uploads.iterdir() if not p.name.startswith(".")}

    def _name(self, path: Path) -> str:
        return index_name(self._documents, path)

    def _path(self, name: str) -> Path:
        """Where an uploaded file of that name is: directly in the directory, never hidden."""
        if self._uploads is None:
            raise ApiError(403, NOTHING)
        plain = name.isprintable() and "/" not in name and "\\" not in name
        if not plain or name.startswith(".") or not 1 <= len(name.encode()) <= LONGEST_NAME:
            raise ApiError(400, f"{name!r} is no name of a file", param="name")
        return self._uploads / name


async def _contents(side: LocalSide) -> dict[str, str]:
    library = side.library
    if library is None:
        return {}
    return await side.librarian.run(lambda: library.retriever.index.files())
