"""Memory in the operating system's pages: shared by its readers, and free before it is written.

The page table is the block table: a document's keys and values lie in memory once, and every
session that reads them sees those pages in front of its own tokens, in one row of columns. So
attention copies nothing, knows of no blocks, and gives the bits that it gives without them. Only
Linux does this, for the CPU's memory: elsewhere memory is reserved, and documents are copied.
"""

import ctypes
import functools
import mmap
import os
import sys
import threading
import weakref

import torch
from torch import Tensor

PAGE = mmap.PAGESIZE
_MOST_SHOWN = 16_384
"""Places where shared pages are shown at once: each takes two of Linux's 65,530 mappings."""
_MAP_FIXED = 0x10


class _Shown:
    """The number of places; memory may end in any thread, and in the midst of anything."""

    number = 0
    lock = threading.RLock()


def _hidden(places: list[int]) -> None:
    with _Shown.lock:
        _Shown.number -= len(places)


class SharedPages:
    """Bytes that are written once and then shown in `Pages`, as often as there is need."""

    def __init__(self, size: int) -> None:
        """Raises OSError where this does not work."""
        if not _works():
            raise OSError("memory is shared on Linux only")
        self.file = os.memfd_create("dragonrt-kv")
        weakref.finalize(self, os.close, self.file).atexit = False
        os.ftruncate(self.file, size)
        self.bytes: Tensor = torch.frombuffer(mmap.mmap(self.file, size), dtype=torch.uint8)


class Pages:
    """Zeros that take no memory before they are written, where that works."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.bytes: Tensor
        self._memory: mmap.mmap | None = None
        self._places: list[int] = []
        if device.type != "cpu" or not _works():
            self.bytes = torch.zeros(size, dtype=torch.uint8, device=device)
            return
        self._memory = mmap.mmap(-1, max(size, PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)  # one written byte must not take 2 MiB
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        weakref.finalize(self._memory, _hidden, self._places).atexit = False

    def show(self, shared: SharedPages, start: int, size: int, at: int) -> None:
        """Have the bytes at `at` be `size` of the shared ones from `start` on, a page's beginning.

        What is written here is never seen elsewhere. Of the last page, unless it is full, and
        where nothing can be shown, the bytes are copied.
        """
        whole = size - size % PAGE if at % PAGE == 0 and self._show(shared, start, size, at) else 0
        self.bytes[at + whole : at + size] = shared.bytes[start + whole : start + size]

    def _show(self, shared: SharedPages, start: int, size: int, at: int) -> bool:
        whole = size - size % PAGE
        if self._memory is None or not whole or _Shown.number >= _MOST_SHOWN:
            return False
        place = self.bytes.data_ptr() + at
        access, how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
        if _map()(place, whole, access, how, shared.file, start) != place:
            return False
        self._places.append(at)
        with _Shown.lock:
            _Shown.number += 1
        return True


def paged(size: int) -> int:
    """Return so many bytes, filled up to whole pages."""
    return -(-size // PAGE) * PAGE


@functools.cache
def _works() -> bool:
    return sys.platform == "linux" and hasattr(os, "memfd_create")


@functools.cache
def _map() -> "ctypes._NamedFuncPointer":
    function = ctypes.CDLL(None).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    return function
