"""How glibc treats memory that is freed: kept while a model runs, given back while it is loaded.

Forwards use the same memory again and again: logits over a large vocabulary take tens of megabytes.
By its default glibc gives blocks of that size back to the system as soon as they are freed, and the
next forward waits for the system to clear them anew, page by page.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # <malloc.h>
_MEGABYTE = 2**20
_SMALL = 2**17


def keep_freed_memory() -> None:
    """Have this process keep up to 128 MB that are freed; without effect where there is no glibc.

    All threads allocate from one arena, for the others cannot hold blocks of that size.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 64 * _MEGABYTE)
        mallopt(_TRIM_THRESHOLD, 128 * _MEGABYTE)
        mallopt(_ARENA_MAX, 1)


@contextmanager
def loading() -> Iterator[None]:
    """Give freed memory back at once while weights pass through copies; keep it from then on."""
    mallopt, trim = _of_glibc("mallopt"), _of_glibc("malloc_trim")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _SMALL)
    try:
        yield
    finally:
        if trim is not None:
            trim(0)
        keep_freed_memory()


def _of_glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
