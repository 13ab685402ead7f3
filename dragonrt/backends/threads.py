"""The default number of threads of a model."""

import os
from pathlib import Path

_MOST_THREADS = 8  # products of few rows wait for memory: more threads than this hardly help


def usual_threads(sides: int = 1) -> int:
    """Return OMP_NUM_THREADS, else the physical cores that each of `sides` has, at most 8.

    Threads of two sides that wait for each other's cores are many times slower.
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # a core may count as several processors
        cores = len({_siblings(number) for number in os.sched_getaffinity(0)})
    return max(1, min(_MOST_THREADS, cores // sides))


def _siblings(processor: int) -> str:
    """Return a name of the processor's core on Linux: the list of those that share it."""
    topology = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        return topology.read_text(encoding="ascii")
    except OSError:
        return str(processor)
