"""Limits of a model on this machine: its CPU threads, and the KV memory of its answers."""

import math
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError

RETRY_S = 1.0
_ROOT = Path("/")
_MOST_THREADS = 8  # products of few rows wait for memory: more threads than this hardly help
_SHARE = 4
_UNKNOWN = 16 * 2**30  # bytes, if the machine's memory is unknown


def usual_threads(sides: int = 1, root: Path = _ROOT) -> int:
    """Return a model's default number of threads: OMP_NUM_THREADS, else cores / `sides`, 1 to 8.

    `sides` models share the machine's cores. `root` is the directory that has `proc` and `sys`.
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return max(1, min(usable_cores(root) // sides, _MOST_THREADS))


def usable_cores(root: Path = _ROOT) -> int:
    """Return how many physical cores this process may use, or its CPU quota if that is less.

    `root` is the directory that has `proc` and `sys`.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # a core may count as several processors
        cores = len({_siblings(number, root) for number in os.sched_getaffinity(0)})
    return max(1, min([cores, *_quotas(root)]))


def usual_limit(device_memory: int | None, root: Path = _ROOT) -> int:
    """Return the default limit of KV in bytes: a quarter of the accelerator's memory, else of RAM.

    RAM is the machine's, or a lower limit of a cgroup. `root` is the directory of `proc` and `sys`.
    """
    if device_memory is not None:
        return device_memory // _SHARE
    found = _UNKNOWN
    if hasattr(os, "sysconf"):
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory.limit_in_bytes"):  # of version 2, of version 1
        limits = _cgroup_values("memory", name, root)
        found = min([found, *(int(limit) for limit in limits if limit.isdecimal())])
    return found // _SHARE


def _siblings(processor: int, root: Path) -> str:
    """Return a name of the processor's core on Linux: the list of those that share it."""
    topology = root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
    try:
        return topology.read_text(encoding="ascii")
    except OSError:
        return str(processor)


def _quotas(root: Path) -> list[int]:
    """Return the whole processors that each control group above this process allows."""
    pairs = [value.split() for value in _cgroup_values("cpu", "cpu.max", root)]
    microseconds = _cgroup_values("cpu", "cpu.cfs_quota_us", root)
    periods = _cgroup_values("cpu", "cpu.cfs_period_us", root)
    pairs += [[quota, period] for quota, period in zip(microseconds, periods, strict=False)]
    return [int(quota) // int(period) for quota, period in pairs if quota.isdecimal()]


def _cgroup_values(controller: str, name: str, root: Path) -> Iterator[str]:
    """Yield the text of the file `name` in this process' control group and in each one above it.

    `controller` names the hierarchy of version 1. Version 2 has one for all. A container may see
    its own group as the top, under its path outside.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        if controller in controllers.split(","):
            top /= controller
        elif number != "0" or controllers:
            continue
        group = Path(path.lstrip("/"))
        if ".." in group.parts:  # a group beside the visible ones
            group = Path()
        for found in (group, *group.parents):
            try:
                yield (top / found / name).read_text(encoding="ascii").strip()
            except OSError:  # the top of version 2 has no limits
                continue


class Room:
    """Bytes reserved in a `KvPool` until this object is deleted."""


class KvPool:
    """A limit of KV memory. Answers reserve their bytes at their start, so none lacks memory later.

    Bytes are free again as soon as nothing refers to their `Room`. Thread-safe.
    """

    def __init__(self, limit: float = math.inf) -> None:
        """`limit` is in bytes."""
        self.limit = limit
        self.used = 0
        # Memory is freed in any thread, at any point.
        self._lock = threading.RLock()

    def room(self, size: int) -> Room:
        """Reserve `size` bytes until the returned Room is deleted.

        Raises BusyError if there is no room now, ModelError if `size` exceeds the whole limit.
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
