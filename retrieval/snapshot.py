"""The files of an index on disk: immutable snapshots and the manifest that names one.

    manifest.json              the commit point: which snapshot is valid, and for which model
    snapshot-7/vectors.npy   float32 [chunks, dimension], normalised; row = chunk
    snapshot-7/chunks.jsonl  text, title and places of every chunk, one per line
    snapshot-7/offsets.npy   int64 [chunks + 1], where each line begins
    snapshot-7/files.jsonl   every indexed file: path, content hash, rows of its chunks
    snapshot-7/nearest.faiss only if the corpus is large

A snapshot is written completely, then the manifest is replaced in one step, then the old
snapshot is deleted. Readers that hold it keep their mapping; a reader that comes too late for
it reads the manifest again.
"""

import io
import json
import mmap
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import nearest
from .errors import RetrievalError
from .storage import TEMPORARY, make_directory, sync_directory, write_atomically, write_durably

FORMAT = 2
_MANIFEST = "manifest.json"
_PREFIX = "snapshot-"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk stands: characters `start:end` of the text of the file `source`."""

    source: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, with the place it was found at.

    Attributes:
        digest: names the chunk by its text and title, also in the KV store.
        source: the file, relative to the indexed directory, with "/" on every system.
        start, end: its characters in the file's text.
        copies: further places of the same chunk; it is embedded and found only once.
    """

    digest: str
    text: str
    title: str
    source: str
    start: int
    end: int
    copies: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk as found in one file."""

    digest: str
    text: str
    title: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file's content hash and its chunks."""

    content: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot holds: the settings it was made with and its size."""

    snapshot: str
    documents: str
    model: str
    fingerprint: str
    words: int
    overlap: int
    files: int
    chunks: int
    dimension: int
    approximate: bool
    format: int = FORMAT

    @property
    def rebuild_command(self) -> str:
        """The command that makes the index anew from the same documents."""
        return f"dragonrt index {shlex.quote(self.documents)} --rebuild"


class Snapshot:
    """A snapshot, open: later updates cannot change it."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        """Map the files of `manifest`'s snapshot.

        Raises:
            FileNotFoundError: it has been replaced in the meantime.
            RetrievalError: its files are damaged.
        """
        folder = directory / manifest.snapshot
        self.manifest = manifest
        try:
            self.vectors: NDArray[np.float32] = np.load(folder / "vectors.npy", mmap_mode="r")
            self._offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
            self._lines = _map(folder / "chunks.jsonl")
            self._files = folder / "files.jsonl"
            self._approximate = (
                nearest.restore(str(folder / "nearest.faiss")) if manifest.approximate else None
            )
        except FileNotFoundError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            raise _damaged(directory, manifest) from error
        if (
            self.vectors.shape != (manifest.chunks, manifest.dimension)
            or self._offsets.shape != (manifest.chunks + 1,)
            or int(self._offsets[-1]) != len(self._lines)
        ):
            raise _damaged(directory, manifest)

    def search(
        self, query: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and cosines of the `k` chunks nearest to `query` [dimension]."""
        if self._approximate is None:
            return nearest.exact(self.vectors, query, k)
        return nearest.approximate(self._approximate, self.vectors, query, k)

    def chunk(self, row: int) -> Chunk:
        """The chunk of a row."""
        line = json.loads(self._lines[self._offsets[row] : self._offsets[row + 1]])
        first, *copies = [Place(*place) for place in line["places"]]
        return Chunk(
            line["digest"],
            line["text"],
            line["title"],
            first.source,
            first.start,
            first.end,
            tuple(copies),
        )

    def files(self) -> dict[str, IndexedFile]:
        """Every indexed file by its path, in order."""
        chunks = [self.chunk(row) for row in range(self.manifest.chunks)]
        files = {}
        with self._files.open(encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                found = [(chunks[row], start, end) for row, start, end in line["chunks"]]
                pieces = tuple(
                    Piece(chunk.digest, chunk.text, chunk.title, start, end)
                    for chunk, start, end in found
                )
                files[line["path"]] = IndexedFile(line["content"], pieces)
        return files


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of the index in `directory`; None if there is no index.

    Raises:
        RetrievalError: it is damaged or of another version.
    """
    try:
        values = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        if values["format"] == FORMAT:
            return Manifest(**values)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RetrievalError(f"cannot read {directory}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RetrievalError(
            f"{directory / _MANIFEST} is damaged: make the index anew with dragonrt index "
            "DIR --rebuild"
        ) from error
    raise RetrievalError(
        f"the index in {directory} is of format {values['format']}, this version reads {FORMAT}: "
        "make it anew with dragonrt index DIR --rebuild"
    )


def next_snapshot(directory: Path) -> str:
    """A name that no snapshot in `directory` has."""
    numbers = [re.fullmatch(rf"{_PREFIX}(\d+)", path.name) for path in directory.iterdir()]
    return f"{_PREFIX}{1 + max((int(match[1]) for match in numbers if match), default=0)}"


def ordered_chunks(files: dict[str, IndexedFile]) -> dict[str, list[tuple[Piece, str]]]:
    """Digest of every chunk -> its occurrences (piece and file); the n-th digest is row n."""
    found: dict[str, list[tuple[Piece, str]]] = {}
    for path in sorted(files):
        for piece in files[path].pieces:
            found.setdefault(piece.digest, []).append((piece, path))
    return found


def write_snapshot(
    directory: Path,
    manifest: Manifest,
    files: dict[str, IndexedFile],
    vectors: Iterable[NDArray[np.float32]],
) -> None:
    """Write a snapshot and make it the valid one, in one step.

    `vectors` are blocks of rows [*, dimension], in the order of `ordered_chunks(files)`.
    """
    folder = directory / manifest.snapshot
    make_directory(folder)
    chunks = ordered_chunks(files)
    lines = [_chunk_line(digest, pieces) for digest, pieces in chunks.items()]
    ends = np.cumsum([0, *map(len, lines)], dtype=np.int64)
    rows = {digest: row for row, digest in enumerate(chunks)}
    write_durably(folder / "chunks.jsonl", lines)
    write_durably(folder / "offsets.npy", _npy(ends.shape, ends.dtype, [ends]))
    write_durably(folder / "files.jsonl", (_file_line(p, files[p], rows) for p in sorted(files)))
    shape = (manifest.chunks, manifest.dimension)
    write_durably(folder / "vectors.npy", _npy(shape, np.dtype(np.float32), vectors))
    if manifest.approximate:
        mapped = np.load(folder / "vectors.npy", mmap_mode="r")
        write_durably(folder / "nearest.faiss", [nearest.build(mapped)])
    sync_directory(folder)
    sync_directory(directory)
    data = json.dumps(asdict(manifest), indent=2) + "\n"
    write_atomically(directory / _MANIFEST, data.encode())


def sweep(directory: Path, valid: str | None) -> None:
    """Delete what interrupted updates and old snapshots left behind; keep `valid`."""
    for path in directory.glob(f"{_PREFIX}*"):
        if path.name != valid:
            shutil.rmtree(path, ignore_errors=True)
    for path in directory.glob(TEMPORARY):
        with suppress(OSError):
            path.unlink()


def _chunk_line(digest: str, pieces: Sequence[tuple[Piece, str]]) -> bytes:
    first = pieces[0][0]
    places = [(path, piece.start, piece.end) for piece, path in pieces]
    return _line({"digest": digest, "title": first.title, "text": first.text, "places": places})


def _file_line(path: str, file: IndexedFile, rows: dict[str, int]) -> bytes:
    chunks = [(rows[piece.digest], piece.start, piece.end) for piece in file.pieces]
    return _line({"path": path, "content": file.content, "chunks": chunks})


def _line(values: dict[str, Any]) -> bytes:
    # ASCII escapes: file names that are not valid Unicode survive the round trip.
    return json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n"


def _npy(
    shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Iterable[NDArray[Any]]
) -> Iterator[bytes]:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": dtype.str, "fortran_order": False, "shape": shape}
    )
    yield header.getvalue()
    for block in blocks:
        yield np.ascontiguousarray(block, dtype=dtype).tobytes()


def _map(path: Path) -> bytes | mmap.mmap:
    with path.open("rb") as file:
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _damaged(directory: Path, manifest: Manifest) -> RetrievalError:
    return RetrievalError(
        f"the index in {directory} is damaged: make it anew with {manifest.rebuild_command}"
    )
