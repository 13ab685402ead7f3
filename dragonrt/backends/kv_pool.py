"""The bounded memory of one side for its sessions' keys and values."""

import math
import os
import threading
import weakref
from pathlib import Path

from dragonrt.backends.cgroup import cgroup_values
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError

_SHARE = 4
RETRY_S = 1.0
_UNKNOWN = 16 * 2**30  # bytes, if the machine's memory is unknown


def usual_limit(device_memory: int | None, root: Path = Path("/")) -> int:
    """Return the default limit: a quarter of the accelerator's memory, else of this process'.

    That is the machine's or, if less, what its control groups may have. `root` holds their files.
    """
    if device_memory is not None:
        return device_memory // _SHARE
    found = _UNKNOWN
    if hasattr(os, "sysconf"):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory.limit_in_bytes"):  # of version 2, of version 1
        limits = cgroup_values("memory", name, root)
        found = min([found, *(int(limit) for limit in limits if limit.isdecimal())])
    return found // _SHARE


class Room:
    """Bytes that are counted until this object is deleted."""


class KvPool:
    """Reserves the memory of sessions at their start, so that a running one never lacks room.

    Memory is free as soon as nothing refers to it. Thread-safe.
    """

    def __init__(self, limit: float = math.inf) -> None:
        """`limit` is in bytes."""
        self.limit = limit
        self.used = 0
        # Memory is freed in any thread, at any point.
        self._lock = threading.RLock()

    def room(self, size: int) -> Room:
        """Reserve `size` bytes.

        Raises BusyError if there is no room now, ModelError if there never will be.
        """
        with self._lock:
            if size > self.limit:
                raise ModelError(
                    f"the question needs {size / 1e6:,.1f} MB of KV, and this side has "
                    f"{self.limit / 1e6:,.1f} MB: ask for fewer documents or a shorter answer"
                )
            if self.used + size > self.limit:
                raise BusyError("too many answers are under way for this side's memory", RETRY_S)
            self.used += size
        room = Room()
        weakref.finalize(room, self._give_back, size).atexit = False
        return room

    def _give_back(self, size: int) -> None:
        with self._lock:
            self.used -= size
