"""Choose the files to index, give them names, and find out which of them have changed."""

import hashlib
import os
import re
import shlex
import stat
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from unicodedata import normalize

from . import DocumentError, RetrievalError
from .documents import SUFFIXES
from .files import escaped, opened

CUT = "5"
"""Version of the cutting of texts: files cut by another version are read again."""

_MAILDIR = f"{os.sep}cur", f"{os.sep}new"  # messages have names with dots and commas there
_CONFLICT = re.compile(
    r" \([^()/]*conflicted copy[^()/]*\)|\.sync-conflict-\d{8}-\d{6}(-\w+)?(?=\.[^./]*$|$)"
)
"""In names of copies by Dropbox and Nextcloud, or by Syncthing."""
_SETTLED_NS = 2_000_000_000


class FoundFiles:
    """The files to index, found when the object is made: `files` has their paths by name.

    Names are relative to the documents, with "/", and printable as by `files.escaped`. `root` has
    the documents' paths, quoted for a shell. `ignored` are names of files of unsupported kinds,
    `skipped` has the names of files and directories that cannot be read, with the reasons.
    """

    def __init__(
        self, documents: Path | Sequence[Path], index: Path, exclude: Sequence[str] = ()
    ) -> None:
        """Find the files of `documents`, each a directory or a file; RetrievalError if it is not.

        Hidden, `excluded` and the index's files are left out unless named. A file and the links to
        it are one document. Links out of the documents are skipped.
        """
        named = [documents] if isinstance(documents, Path) else documents
        paths = [Path(os.path.abspath(path)) for path in named]  # noqa: PTH100 (keeps links)
        if not paths:
            raise RetrievalError("no documents are named: give a directory or files to index")
        self.root = escaped(shlex.join(map(str, paths)))
        self.files: dict[str, str] = {}
        self.ignored: list[str] = []
        self.skipped: dict[str, str] = {}
        self._before = len(str(_base(paths) / "x")) - 1
        self._roots = tuple(map(os.path.realpath, paths))
        self._left_out = excluded(exclude)
        self._seen = {os.path.realpath(index)}
        for path in paths:
            if path.is_dir():
                self._walk(str(path))
            elif path.exists():
                self._add(str(path))
            else:
                raise RetrievalError(f"there is no file or directory {path}")
        links = {name: os.path.realpath(p) for name, p in self.files.items() if os.path.islink(p)}  # noqa: PTH114
        seen = {path for name, path in self.files.items() if name not in links}
        for name, real in links.items():
            if real in seen:
                del self.files[name]
            seen.add(real)
        for name in [*self.files]:
            if (other := _CONFLICT.sub("", name)) != name and other in self.files:
                del self.files[name]
                self.skipped[name] = f"is another version of {other} by a sync program: merge them"

    def _name(self, path: str) -> str:
        """Return a file's name, not yet `escaped`; accents are stored in one way."""
        return normalize("NFC", path[self._before :].replace(os.sep, "/"))

    def _add(self, path: str) -> None:
        name = escaped(self._name(path))
        if self.files.setdefault(name, path) != path:
            self.skipped[name] = "is the name of two files, with accents stored in two ways"

    def _walk(self, root: str) -> None:
        """Collect the new files below a directory; in strings, for speed."""

        def unreadable(error: OSError) -> None:
            name = escaped(self._name(error.filename))
            self.skipped[f"{name}/"] = f"cannot be read: {error.strerror}"

        for folder, folders, files in os.walk(root, onerror=unreadable):
            real = os.path.realpath(folder)
            if real in self._seen:
                folders.clear()
                continue
            self._seen.add(real)
            folders[:] = [n for n in sorted(folders) if self._wanted(f"{folder}{os.sep}{n}", "/")]
            for path in (f"{folder}{os.sep}{file}" for file in sorted(files)):
                if self._wanted(path):
                    self._add(path)

    def _wanted(self, path: str, slash: str = "") -> bool:
        """Return whether to read a file, or with a `slash` a directory, and note why not."""
        name, (begin, suffix) = self._name(path), os.path.splitext(path)  # noqa: PTH122
        folder, _, file = begin.rpartition(os.sep)
        # "~$" begins the mark that an office program puts beside an open document.
        if file.startswith((".", "~$")) or self._left_out(name + slash):
            return False
        known = suffix.lower() in SUFFIXES or folder.endswith(_MAILDIR)
        if not slash and not known and (suffix or not _is_text(path)):
            self.ignored.append(escaped(name))
            return False
        if not os.path.islink(path):  # noqa: PTH114
            return True
        real = os.path.realpath(path)
        within = any(f"{real}{os.sep}".startswith(f"{root}{os.sep}") for root in self._roots)
        if within or not os.path.exists(real):  # noqa: PTH110
            return not slash
        self.skipped[escaped(name)] = "is a link out of the documents: name its target to read it"
        return False


def _is_text(path: str) -> bool:
    """Return whether a file begins as text does; True if it cannot be read, which is said later."""
    try:
        with opened(Path(path)) as file:
            begin = file.read(1024)
        return bool(getincrementaldecoder("utf-8")().decode(begin)) and b"\0" not in begin
    except UnicodeDecodeError:
        return False
    except OSError:
        return True


def index_name(documents: Sequence[Path], file: Path) -> str:
    """Return the name that an index of `documents` gives to `file`, which is one or lies in one."""
    base = _base([Path(os.path.abspath(path)) for path in documents])  # noqa: PTH100 (as in find)
    name = Path(os.path.abspath(file)).relative_to(base).as_posix()  # noqa: PTH100
    return escaped(normalize("NFC", name))


def excluded(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a test of whether a file's name, or a directory above it, matches one of `patterns`.

    As in .gitignore, without "!": "*" and "?" match within a name, "**" across directories, "[ab]"
    one of several. With a "/" before its end a pattern begins at the root of the documents; with
    one at its end it matches directories alone.
    """
    found = [_parts(normalize("NFC", each)) for each in patterns if each.strip("/")]
    return lambda name: any(_matches(name.split("/"), parts) for parts in found)


def _parts(pattern: str) -> list[str]:
    """Return the names in a pattern; it matches paths that begin with matching names."""
    parts = pattern.strip("/").split("/")
    if "/" not in pattern.rstrip("/"):
        parts = ["**", *parts]
    if pattern.endswith("/"):
        return [*parts, "*"]
    return [*parts[:-1], "*"] if parts[-1] == "**" else parts


def _matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    reached = {0}  # how many of the name's parts the pattern's so far may match
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached, default=len(name)), len(name)))
        else:
            reached = {n + 1 for n in reached if n < len(name) and fnmatchcase(name[n], part)}
    return bool(reached)


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex. Raises DocumentError if it cannot be read."""
    try:
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error


def file_stamp(path: str) -> tuple[int, str, float]:
    """Return a file's size in bytes, a stamp that shows changes, and its Unix time of modification.

    If the stamp equals that of the last update, neither the file nor the way to chunk it (`CUT`)
    has changed, so it need not be read. A stamp with "/" at its start shows nothing, as the file
    changed in the last 2 s: read it next time, too. Raises DocumentError if it is no regular file.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 (many files)
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise DocumentError("is not a regular file")
    # A time in the future is no present change, either: the clock was wrong, or the date is made.
    now, times = time.time_ns(), (found.st_mtime_ns, found.st_ctime_ns)
    settled = all(abs(now - at) >= _SETTLED_NS for at in times)
    stamp = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
    return found.st_size, f"{stamp if settled else ''}/{CUT}", min(found.st_mtime, now / 1e9)


def _base(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))
