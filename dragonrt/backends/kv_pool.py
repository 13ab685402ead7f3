"""The bounded memory of one side for its sessions' keys and values, with each document once."""

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
_UNKNOWN = 16 * 2**30  # bytes, if the machine's memory is unknown
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def usual_limit(device_memory: int | None) -> int:
    """Return the default limit: a quarter of the accelerator's, machine's or container's memory."""
    if device_memory is not None:
        return device_memory // _SHARE
    found = _UNKNOWN
    if hasattr(os, "sysconf"):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or one without a limit: "max"
        found = min(found, int(_CONTAINER.read_text(encoding="ascii")))
    return found // _SHARE


class Room:
    """Bytes that are counted until this object is deleted."""


class KvPool:
    """Reserves the memory of sessions at their start, so that a running one never lacks room.

    A document is in memory once, while any session reads it. Memory is free as soon as nothing
    refers to it. Thread-safe. The methods raise BusyError if there is no room now, ModelError if
    there never will be; `beside` are the session's other documents.
    """

    def __init__(self, limit: float = math.inf) -> None:
        """`limit` is in bytes."""
        self.limit = limit
        self.used = 0
        # Memory is freed in any thread, at any point.
        self._lock = threading.RLock()
        self._documents: weakref.WeakValueDictionary[str, Document] = weakref.WeakValueDictionary()

    def document(self, name: str) -> Document | None:
        """Return the document of that name, if a session reads it now."""
        return self._documents.get(name)

    def keep(self, name: str, document: Document, beside: Sequence[Document] = ()) -> Document:
        """Return the document that sessions share under that name, while any refers to it.

        If memory cannot be shared, each session's copy is counted.
        """
        document = document.shared()
        with self._lock:
            if not document.is_shared or name in self._documents:
                return self._documents.get(name, document)
            self._take(document, document.bytes, beside)
            self._documents[name] = document
            return document

    def room(self, size: int, beside: Sequence[Document] = ()) -> Room:
        """Reserve `size` bytes."""
        room = Room()
        self._take(room, size, beside)
        return room

    def _take(self, holder: object, size: int, beside: Sequence[Document]) -> None:
        needed = size + sum({id(each): each.bytes for each in beside if each.is_shared}.values())
        with self._lock:
            if needed > self.limit:
                raise ModelError(
                    f"the question needs {needed / 1e6:,.1f} MB of KV, and --kv-memory gives "
                    f"{self.limit / 1e6:,.1f} MB: ask for fewer documents or a shorter answer"
                )
            if self.used + size > self.limit:
                raise BusyError("too many answers are under way for this side's memory", _RETRY_S)
            self.used += size
            weakref.finalize(holder, self._give_back, size).atexit = False

    def _give_back(self, size: int) -> None:
        with self._lock:
            self.used -= size
