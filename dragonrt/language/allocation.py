"""Memory that forwards use again and again: logits over a large vocabulary take tens of megabytes.

By its default glibc gives blocks of that size back to the system as soon as they are freed, and the
next forward waits for the system to clear them anew, page by page.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # <malloc.h>
_MEGABYTE = 2**20


def keep_freed_memory() -> None:
    """Have this process keep up to 128 MB that are freed; without effect where there is no glibc.

    All threads allocate from one arena, for the others cannot hold blocks of that size.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 64 * _MEGABYTE)
        mallopt(_TRIM_THRESHOLD, 128 * _MEGABYTE)
        mallopt(_ARENA_MAX, 1)
