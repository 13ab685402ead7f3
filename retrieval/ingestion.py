"""From files to pieces: which files to index, and what each of them holds."""

import hashlib
import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .chunking import chunk, header
from .documents import SUFFIXES, Parser, load
from .failures import DocumentError, RetrievalError
from .store import Chunk, IndexedFile

CUT = "2"
"""Of the way in which texts are cut: files that were cut in another way are read again."""

_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files to index.

    Attributes:
        root: the directory or the paths, as arguments of a command line.
        files: every file by its name in the index, in order; names are relative to the directory
            (to the common one if there are several), with "/" on every system.
        ignored: names of the files of other kinds that lie between them.
    """

    root: str
    files: dict[str, Path]
    ignored: tuple[str, ...]


def find(documents: Path | Sequence[Path], index: Path, exclude: Sequence[str] = ()) -> FoundFiles:
    """The files named by `documents`, each a directory (searched with all below it) or a file.

    Hidden files, the index itself and what is `excluded` are passed over. A file named explicitly
    is always taken.

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
    # Of ten thousands of files, to build and take apart paths took most of the time.
    before = len(str(base / "x")) - 1
    left_out = excluded(exclude)

    def name_of(file: str) -> str:
        return file[before:].replace(os.sep, "/")

    for path in paths:
        below = _below(path, index.resolve(), lambda file: left_out(name_of(file)))
        for file in below if path.is_dir() else [str(path)]:
            name = name_of(file)
            if file == str(path) or os.path.splitext(file)[1].lower() in SUFFIXES:  # noqa: PTH122
                files[name] = Path(file)
            else:
                ignored.append(name)
    names = shlex.join(str(path) for path in paths)
    return FoundFiles(names, dict(sorted(files.items())), tuple(sorted(ignored)))


def index_name(documents: Sequence[Path], file: Path) -> str:
    """What a file below (or among) `documents` is called in their index."""
    base = _base([Path(os.path.abspath(path)) for path in documents])  # noqa: PTH100 (as in find)
    return Path(os.path.abspath(file)).relative_to(base).as_posix()  # noqa: PTH100


def excluded(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a file of some name in the index, or a directory above it, fits one of `patterns`.

    As in .gitignore: "*" and "?" stand for what is within a name, "**" for directories too, "[ab]"
    for one of several; a pattern with a "/" before its end begins at the root, one with a "/" at
    its end is a directory's. There is no "!".
    """
    found = [_expression(pattern) for pattern in patterns if pattern.strip("/")]
    expression = re.compile("|".join(found) if found else r"(?!)", re.DOTALL)
    return lambda name: expression.fullmatch(name) is not None


def _expression(pattern: str) -> str:
    body = ""
    for part in re.findall(r"\*\*/|\*\*|\[!?[^]/]+\]|.", pattern.strip("/"), re.DOTALL):
        if part.startswith("[") and len(part) > 1:
            body += "(?!/)" + part.replace("\\", r"\\").replace("[!", "[^", 1)
        else:
            body += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(
                part, re.escape(part)
            )
    anywhere = "" if "/" in pattern.rstrip("/") else "(?:.*/)?"
    return f"{anywhere}{body}/.*" if pattern.endswith("/") else f"{anywhere}{body}(?:/.*)?"


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        DocumentError: the file cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error


def look(path: Path) -> tuple[int, str]:
    """A file's size, and its stamp: what changes whenever its content does.

    The stamp is empty where the content changed just now: two changes in one tick of the file
    system's clock have one time (as in git's index).

    Raises:
        DocumentError: there is no such file, or it is a pipe, a device or the like.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise DocumentError("is not a regular file")
    settled = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) >= _SETTLED_NS
    stamp = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
    return found.st_size, stamp if settled else ""


def read_file(
    name: str, path: Path, content: str, words: int, stamp: str, parser: Parser
) -> IndexedFile:
    """Load and cut a file whose `content_hash` is `content` and whose `stamp` that was before.

    `name` is what it is called in the index. A table's header is repeated in every chunk of it.

    Raises:
        DocumentError: the file cannot be read as a document.
    """
    document = load(path, parser)
    chunks = []
    starts = [start for start, _ in document.sections]
    for start, end in chunk(document.text, words, starts, document.tables):
        text, title = document.text[start:end], document.name(start)
        if above := header(document.text, start, document.tables, words):
            text = f"{above}\n{text}"
        digest = hashlib.sha256(f"{title}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
        page = document.page(start)
        chunks.append(Chunk(digest[:32], text, title, name, start, end, page))
    return IndexedFile(content, tuple(chunks), stamp)


def _base(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


def _below(directory: Path, index: Path, left_out: Callable[[str], bool]) -> list[str]:
    found = []
    for folder, folders, names in os.walk(directory):
        at = os.path.join(folder, "")  # noqa: PTH118
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and not left_out(f"{at}{name}{os.sep}")
            and Path(folder, name).resolve() != index
        )
        files = (at + name for name in sorted(names) if not name.startswith("."))
        found += [file for file in files if not left_out(file)]
    return found
