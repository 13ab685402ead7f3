"""The default number of threads of a model."""

import os
from pathlib import Path

from dragonrt.backends.cgroup import cgroup_values

_ROOT = Path("/")
_MOST_THREADS = 8  # products of few rows wait for memory: more threads than this hardly help


def usual_threads(sides: int = 1, root: Path = _ROOT) -> int:
    """Return OMP_NUM_THREADS, else the `usable_cores` that each of `sides` has, at most 8.

    Threads of two sides that wait for each other's cores are many times slower.
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return max(1, min(usable_cores(root) // sides, _MOST_THREADS))


def usable_cores(root: Path = _ROOT) -> int:
    """Return the physical cores that this process may use, or its CPU quota if that is less.

    Below `root` are `proc` and `sys`.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # a core may count as several processors
        cores = len({_siblings(number) for number in os.sched_getaffinity(0)})
    return max(1, min([cores, *_quotas(root)]))


def _quotas(root: Path) -> list[int]:
    """Return the whole processors that each control group above this process allows."""
    pairs = [value.split() for value in cgroup_values("cpu", "cpu.max", root)]
    microseconds = cgroup_values("cpu", "cpu.cfs_quota_us", root)
    periods = cgroup_values("cpu", "cpu.cfs_period_us", root)
    pairs += [[quota, period] for quota, period in zip(microseconds, periods, strict=False)]
    return [int(quota) // int(period) for quota, period in pairs if quota.isdecimal()]


def _siblings(processor: int) -> str:
    """Return a name of the processor's core on Linux: the list of those that share it."""
    topology = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        return topology.read_text(encoding="ascii")
    except OSError:
        return str(processor)
