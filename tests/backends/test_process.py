"""Memory that is freed and used again costs nothing the second time."""

import resource
import subprocess
import sys

import pytest

from dragonrt.backends.torch_.process import keep_freed_memory

LARGE = 24 * 2**20  # bytes: three such blocks are more than glibc keeps by itself


FAULTS = f"""
import resource, torch, dragonrt.backends.model
from dragonrt.backends.torch_.process import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

def use():
    blocks = [torch.empty({LARGE}, dtype=torch.uint8).fill_(1) for _ in range(3)]

keep_freed_memory()
use()
before = faults()
use()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the faults of a thread")
def test_large_blocks_are_kept_when_they_are_freed() -> None:
    """In a process of its own, whose heap nothing has used before."""
    told = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    pages = 3 * LARGE // resource.getpagesize()
    assert int(told.stdout) < pages / 2


def test_nothing_happens_where_there_is_no_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "win32")
    keep_freed_memory()
