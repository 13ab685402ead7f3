"""The memory that one side keeps for its sessions' keys and values: bounded, documents once."""

import math
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dragonrt.backends.backend import Document
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError

_SHARE = 4
_RETRY_S = 1.0
_UNKNOWN = 16 * 2**30  # bytes of a machine that does not say
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def usual_limit(device_memory: int | None) -> int:
    """Return a quarter of the accelerator's own memory; else of the machine's or container's."""
    if device_memory is not None:
        return device_memory // _SHARE
    found = _UNKNOWN
    if hasattr(os, "sysconf"):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or one without a limit: "max"
        found = min(found, int(_CONTAINER.read_text(encoding="ascii")))
    return found // _SHARE


class Room:
    """Bytes that are counted as long as this lives."""

    __slots__ = ("__weakref__",)


class KvPool:
    """Counts what sessions may take, from their beginning on: so one under way never lacks room.

    A document is in memory once, as long as any session reads it. What a session gives back is free
    the moment nothing refers to it any more. May be used from several threads.
    """

    def __init__(self, limit: float = math.inf) -> None:
        """`limit` is in bytes."""
        self.limit = limit
        self._used = 0
        # Memory is given back in any thread, and in the midst of anything.
        self._lock = threading.RLock()
        self._documents: weakref.WeakValueDictionary[str, Document] = weakref.WeakValueDictionary()

    @property
    def used(self) -> int:
        """The bytes taken, or set aside."""
        return self._used

    def document(self, name: str) -> Document | None:
        """The document of that name, if anybody reads it now."""
        return self._documents.get(name)

    def keep(self, name: str, document: Document, beside: Sequence[Document] = ()) -> Document:
        """The same document as sessions share it, as long as any refers to it.

        Where memory cannot be shared it is counted with each session that copies it. `beside` is
        what the same session keeps already: too much together is too much for ever.

        Raises:
            BusyError: there is no room for it now; ModelError: nor will there be.
        """
        document = document.shared()
        with self._lock:
            if not document.is_shared or name in self._documents:
                return self._documents.get(name, document)
            self._take(document, document.bytes, beside)
            self._documents[name] = document
            return document

    def room(self, size: int, beside: Sequence[Document] = ()) -> Room:
        """So many bytes for a session that reads the documents `beside`.

        Raises:
            BusyError: others have them now; ModelError: there are not so many.
        """
        room = Room()
        self._take(room, size, beside)
        return room

    def _take(self, holder: object, size: int, beside: Sequence[Document]) -> None:
        shared = {id(each): each.bytes for each in beside if each.is_shared}
        needed = size + sum(shared.values())
        with self._lock:
            if needed > self.limit:
                raise ModelError(
                    f"the question needs {_megabytes(needed)} of KV, and --kv-memory gives "
                    f"{_megabytes(self.limit)}: ask for fewer documents or a shorter answer"
                )
            if self._used + size > self.limit:
                raise BusyError("too many answers are under way for this side's memory", _RETRY_S)
            self._used += size
            weakref.finalize(holder, self._give_back, size).atexit = False

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._used -= size


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
