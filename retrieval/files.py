"""Read regular files up to a size, and create files that only their owner can read.

Pipes and devices are refused: opening a pipe would block, and a device may never end. Created files
have the mode 0600, directories 0700, whatever the umask.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

MOST = 2**20
"""Bytes of a file of settings, keys or the like."""

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "lustre")


def network_drive(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the network drive that holds `path`, such as "nfs4"; "" if none known.

    SQLite needs locks that such drives may lack. `mounts` is the file in which Linux lists drives.
    """
    kinds = dict[Path, str]()
    with suppress(OSError):  # only Linux has the list
        for line in mounts.read_text("utf-8", "replace").splitlines():
            _, place, kind, *_ = line.split(" ")
            kinds[Path(place.replace("\\040", " "))] = kind
    here = path.resolve()
    kind = next((kinds[each] for each in (here, *here.parents) if each in kinds), "")
    return kind if kind in _NETWORK else ""


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError at once for pipes, devices, directories."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0)), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is not a regular file")
    return file


def read_bytes(path: Path, most: float = MOST) -> bytes:
    """Return a regular file's bytes, b"" for os.devnull. Raises OSError above `most` bytes."""
    if str(path) == os.devnull:
        return b""
    with opened(path) as file:
        data = file.read() if most == float("inf") else file.read(int(most) + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"is of more than {most:,.0f} bytes")
    return data


def read_text(path: Path, most: float = MOST) -> str:
    """Return the text of a UTF-8 file. Raises OSError as `read_bytes`, ValueError if not UTF-8."""
    return read_bytes(path, most).decode("utf-8")


def create(path: Path, *, new: bool = False) -> BinaryIO:
    """Open a new or emptied file for writing, mode 0600. Raises OSError if it exists and `new`."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if new else os.O_TRUNC)
    flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    number = os.open(path, flags, 0o600)
    if not new and os.name == "posix" and stat.S_ISREG(os.fstat(number).st_mode):
        with suppress(PermissionError):  # it is another user's
            os.fchmod(number, 0o600)
    return os.fdopen(number, "wb")


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700. Raises OSError."""
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def make_private(paths: Iterable[Path]) -> bool:
    """Remove other users' access to those `paths` that this user owns; return if any changed."""
    narrowed = False
    for path in paths if os.name == "posix" else ():
        with suppress(OSError):
            found = path.lstat()
            others = stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
            if others and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
                path.chmod(stat.S_IMODE(found.st_mode) - others)
                narrowed = True
    return narrowed


def escaped(name: str) -> str:
    """Return a file's name with each unprintable character escaped and each backslash doubled."""

    def escape(found: re.Match[str]) -> str:
        code = ord(character := found[0])
        if character == "\\":
            return "\\\\"
        if character.isprintable():
            return character
        if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8, as Python has it
            return f"\\x{code - 0xDC00:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return re.sub(r"[^ -\[\]-~]", escape, name)
