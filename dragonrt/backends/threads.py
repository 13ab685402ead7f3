"""How many threads a model of this process takes by default."""

import os
from pathlib import Path

_MOST_THREADS = 8  # products of few rows wait for memory: more threads than this hardly help
_SIDES = 2  # device and cloud may both run on this machine, and threads of two sides that wait for
# each other's cores spin: two sides with all cores each are many times slower than with half


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
