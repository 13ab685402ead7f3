"""From files to pieces: which files to index, and what each of them holds."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .chunking import chunk
from .documents import SUFFIXES, load
from .errors import DocumentError, RetrievalError
from .store import IndexedFile, Piece


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files to index.

    Attributes:
        root: what the documents are called together: the directory, or several paths.
        files: every file by its name in the index, in order; names are relative to the directory
            (to the common one if there are several), with "/" on every system.
        ignored: names of the files of other kinds that lie between them.
    """

    root: str
    files: dict[str, Path]
    ignored: tuple[str, ...]


def find(documents: Path | Sequence[Path], index: Path) -> FoundFiles:
    """The files named by `documents`, each a directory (searched with all below it) or a file.

    Hidden files and the index itself are passed over. A file named explicitly is always taken.

    Raises:
        RetrievalError: a path does not exist.
    """
    paths = [documents] if isinstance(documents, Path) else list(documents)
    paths = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 (keeps symbolic links)
    if not paths:
        raise RetrievalError("no documents are named: give a directory or files to index")
    for path in paths:
        if not path.exists():
            raise RetrievalError(f"there is no file or directory {path}")
    base = _base(paths)
    files: dict[str, Path] = {}
    ignored = []
    for path in paths:
        for file in _below(path, index.resolve()) if path.is_dir() else [path]:
            name = file.relative_to(base).as_posix()
            if file == path or file.suffix.lower() in SUFFIXES:
                files[name] = file
            else:
                ignored.append(name)
    names = " ".join(str(path) for path in paths)
    return FoundFiles(names, dict(sorted(files.items())), tuple(sorted(ignored)))


def index_name(documents: Sequence[Path], file: Path) -> str:
    """What a file below (or among) `documents` is called in their index."""
    base = _base([Path(os.path.abspath(path)) for path in documents])  # noqa: PTH100 (as in find)
    return Path(os.path.abspath(file)).relative_to(base).as_posix()  # noqa: PTH100


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        DocumentError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error


def read_file(path: Path, content: str, words: int, overlap: int) -> IndexedFile:
    """Load and cut a file whose `content_hash` is `content`.

    Raises:
        DocumentError: the file cannot be read as a document.
    """
    document = load(path)
    pieces = []
    starts = [start for start, _ in document.sections]
    for span in chunk(document.text, words, overlap, starts, document.tables):
        text, title = document.text[span.start : span.end], document.name(span.start)
        digest = hashlib.sha256(f"{title}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
        page = document.page(span.start)
        pieces.append(Piece(digest[:32], text, title, span.start, span.end, page))
    return IndexedFile(content, tuple(pieces))


def _base(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


def _below(directory: Path, index: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(directory):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and (here / name).resolve() != index
        )
        found += [here / name for name in sorted(names) if not name.startswith(".")]
    return found
