"""Settings of the process that runs a model: its threads, and how glibc treats freed memory.

Logits over a large vocabulary take tens of megabytes. By default glibc returns blocks of that size
to the system as soon as they are freed, and the next forward waits for the system to clear them.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # <malloc.h>
_MEGABYTE = 2**20
_MOST_THREADS = 8  # products of few rows wait for memory: more threads than this hardly help
_SIDES = 2  # device and cloud may both run on this machine, and threads of two sides that wait for
# each other's cores spin: two sides with all cores each are many times slower than with half


@contextmanager
def loading(threads: int | None) -> Iterator[None]:
    """Set the threads of torch; return freed memory at once while weights are copied."""
    torch.set_num_threads(usual_threads() if threads is None else threads)
    _of_glibc("mallopt", _MMAP_THRESHOLD, 2**17)
    try:
        yield
    finally:
        _of_glibc("malloc_trim", 0)
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Have this process keep up to 128 MB of freed memory; without effect without glibc.

    All threads allocate from one arena, for the others cannot hold blocks of that size.
    """
    _of_glibc("mallopt", _MMAP_THRESHOLD, 64 * _MEGABYTE)
    _of_glibc("mallopt", _TRIM_THRESHOLD, 128 * _MEGABYTE)
    _of_glibc("mallopt", _ARENA_MAX, 1)


def usual_threads() -> int:
    """Return OMP_NUM_THREADS, else a side's share of the physical cores, at most 8."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # a core may count as several processors
        cores = len({_siblings(number) for number in os.sched_getaffinity(0)})
    return max(1, min(_MOST_THREADS, cores // _SIDES))


def _siblings(processor: int) -> str:
    """Return a name of the processor's core on Linux: the list of those that share it."""
    topology = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        return topology.read_text(encoding="ascii")
    except OSError:
        return str(processor)


def _of_glibc(name: str, *arguments: int) -> None:
    function: Any = None
    if sys.platform == "linux":
        function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
