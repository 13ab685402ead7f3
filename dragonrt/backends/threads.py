"""How many threads a model's forwards take."""

import os
from pathlib import Path

_MOST = 8  # products of few rows wait for memory: more threads than this hardly help
_SIDES = 2  # device and cloud may both run on this machine, and threads of two sides that wait for
# each other's cores spin: two sides with all cores each are many times slower than with half


def usual_threads() -> int:
    """A side's share of the physical cores that this process may run on, at most 8.

    The environment's OMP_NUM_THREADS goes before. What is computed does not depend on it.
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return max(1, min(_MOST, _physical_cores() // _SIDES))


def _physical_cores() -> int:
    """Cores, of which each may count as several processors."""
    if hasattr(os, "sched_getaffinity"):
        processors = os.sched_getaffinity(0)
        return len({_siblings(number) for number in processors})
    return os.cpu_count() or 1


def _siblings(processor: int) -> str:
    """What names the core of a processor on Linux: those that share it."""
    topology = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        return topology.read_text(encoding="ascii")
    except OSError:
        return str(processor)
