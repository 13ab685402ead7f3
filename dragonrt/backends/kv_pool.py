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


class KvPool:
    """Counts the memory of sessions from their beginning on: one under way never lacks room.

    A document is in memory once, as long as any session reads it; memory is free the moment nothing
    refers to it. May be used from several threads. The methods raise BusyError if there is no room
    now, ModelError if there never will be: `beside` are documents that the same session reads, too.
    """

    def __init__(self, limit: float = math.inf) -> None:
        """`limit` is in bytes."""
        self.limit = limit
        self.used = 0
        # Memory is given back in any thread, and in the midst of anything.
        self._lock = threading.RLock()
        self._documents: weakref.WeakValueDictionary[str, Document] = weakref.WeakValueDictionary()

    def document(self, name: str) -> Document | None:
        """Return the document of that name, if a session reads it now."""
        return self._documents.get(name)

    def keep(self, name: str, document: Document, beside: Sequence[Document] = ()) -> Document:
        """Return the same document as sessions share it, as long as any refers to it.

        Where memory cannot be shared it is counted with each session that copies it.
        """
        document = document.shared()
        with self._lock:
            if not document.is_shared or name in self._documents:
                return self._documents.get(name, document)
            self._take(document, document.bytes, beside)
            self._documents[name] = document
            return document

    def room(self, size: int, beside: Sequence[Document] = ()) -> Room:
        """Return so many bytes."""
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
