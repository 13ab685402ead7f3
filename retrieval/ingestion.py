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

from .documents import SUFFIXES
from .failures import DocumentError, RetrievalError
from .files import opened, shown
from .reader import Piece
from .store import Chunk, IndexedFile

CUT = "3"
"""Of the way in which texts are cut: files that were cut in another way are read again."""

_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files to index.

    Attributes:
        root: the directory or the paths, as arguments of a command line.
        files: every file by its name in the index, in order; names are relative to the directory
            (to the common one if there are several), with "/" on every system, as `shown`.
        ignored: names of the files of other kinds that lie between them.
        skipped: names of the files and directories that cannot be looked at, or are not to be, with
            the reasons.
    """

    root: str
    files: dict[str, Path]
    ignored: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def find(
    documents: Path | Sequence[Path],
    index: Path,
    exclude: Sequence[str] = (),
    *,
    follow_links: bool = False,
) -> FoundFiles:
    """The files named by `documents`, each a directory (searched with all below it) or a file.

    Hidden files, the index itself and what is `excluded` are passed over. A file named explicitly
    is always taken. A link to a file within the documents is a file as well; one that leads out of
    them is skipped unless `follow_links`: then directories are, too, each once.

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
    left_out, base = excluded(exclude), _base(paths)
    walk = _Walk(base, paths, os.path.realpath(index), left_out, follow_links)
    for path in paths:
        if path.is_dir():
            walk.below(str(path))
        else:
            walk.files[walk.name(str(path))] = str(path)
    return FoundFiles(
        shown(shlex.join(str(path) for path in paths)),
        {shown(name): Path(file) for name, file in sorted(walk.files.items())},
        tuple(sorted(map(shown, walk.ignored))),
        tuple(sorted((shown(name), reason) for name, reason in walk.skipped.items())),
    )


def index_name(documents: Sequence[Path], file: Path) -> str:
    """What a file below (or among) `documents` is called in their index."""
    return shown(relative_name(documents, file))


def relative_name(documents: Sequence[Path], file: Path) -> str:
    """The same, as the system has it."""
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
            inside = re.sub(r"([\\\[&~|])", r"\\\1", part[1:-1])
            body += _set(f"[{'^' + inside[1:] if inside[0] == '!' else inside}]")
        else:
            body += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(
                part, re.escape(part)
            )
    anywhere = "" if "/" in pattern.rstrip("/") else "(?:.*/)?"
    return f"{anywhere}{body}/.*" if pattern.endswith("/") else f"{anywhere}{body}(?:/.*)?"


def _set(expression: str) -> str:
    """An expression for one of several characters; a range from z to a has none."""
    try:
        re.compile(expression)
    except re.error:
        return "(?!)"
    return f"(?!/){expression}"


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        DocumentError: the file cannot be read.
    """
    try:
        with opened(path) as file:
            digest = hashlib.sha256()
            while block := file.read(2**20):
                digest.update(block)
            return digest.hexdigest()
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


def indexed_file(name: str, content: str, pieces: Sequence[Piece], stamp: str) -> IndexedFile:
    """The file that is called `name` in the index, from what a `Reader` says of it."""
    chunks = []
    for text, title, *place in pieces:
        digest = hashlib.sha256(f"{title}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
        start, end, page = place
        chunks.append(Chunk(digest[:32], text, title, name, start, end, page))
    return IndexedFile(content, tuple(chunks), stamp)


def _base(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


class _Walk:
    """What lies below directories. Of ten thousands of files, paths as objects take most time."""

    def __init__(
        self,
        base: Path,
        roots: Sequence[Path],
        index: str,
        left_out: Callable[[str], bool],
        follow_links: bool,
    ) -> None:
        self.files: dict[str, str] = {}
        self.ignored: list[str] = []
        self.skipped: dict[str, str] = {}
        self._before = len(str(base / "x")) - 1
        self._roots = tuple(os.path.realpath(root) for root in roots)
        self._index, self._left_out, self._follow_links = index, left_out, follow_links
        self._seen: set[tuple[int, int]] = set()

    def name(self, file: str) -> str:
        """What a file is called, before it is shown."""
        return file[self._before :].replace(os.sep, "/")

    def below(self, folder: str) -> None:
        """Take what lies in a directory, and in those in it."""
        try:
            found = os.stat(folder)  # noqa: PTH116
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.skipped[self.name(folder) + "/"] = f"cannot be read: {error.strerror}"
            return
        if (found.st_dev, found.st_ino) in self._seen and found.st_ino:
            return
        self._seen.add((found.st_dev, found.st_ino))
        for entry in inside:
            if not entry.name.startswith("."):
                self._take(entry)

    def _take(self, entry: "os.DirEntry[str]") -> None:
        name = self.name(entry.path)
        try:
            folder, link = entry.is_dir(), entry.is_symlink()
        except OSError as error:  # a circle of links
            self.skipped[name] = f"cannot be read: {error.strerror}"
            return
        known = folder or os.path.splitext(entry.name)[1].lower() in SUFFIXES  # noqa: PTH122
        if self._left_out(name + "/" * folder):
            return
        if not known:
            self.ignored.append(name)
        elif link and not self._follow_links and not self._within(entry.path):
            self.skipped[name] = "is a link out of the documents: --follow-links reads it"
        elif not folder:
            self.files[name] = entry.path
        elif (not link or self._follow_links) and os.path.realpath(entry.path) != self._index:
            self.below(entry.path)

    def _within(self, path: str) -> bool:
        """Whether a link leads to one of the documents, or to nothing."""
        real = os.path.realpath(path)
        return not os.path.exists(real) or any(  # noqa: PTH110
            real == root or real.startswith(os.path.join(root, ""))  # noqa: PTH118
            for root in self._roots
        )
