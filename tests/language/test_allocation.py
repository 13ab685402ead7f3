"""Memory that is freed and used again costs nothing the second time."""

import sys

import pytest
import torch

from dragonrt.language.allocation import keep_freed_memory

LARGE = 24 * 2**20  # bytes: three such blocks are more than glibc keeps by itself


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the faults of a thread")
def test_large_blocks_are_kept_when_they_are_freed() -> None:
    import resource

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    def use() -> None:
        blocks = [torch.empty(LARGE, dtype=torch.uint8).fill_(1) for _ in range(3)]
        assert all(int(block[-1]) == 1 for block in blocks)

    keep_freed_memory()
    use()
    before = faults()
    use()
    pages = 3 * LARGE // resource.getpagesize()
    assert faults() - before < pages / 4


def test_nothing_happens_where_there_is_no_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    keep_freed_memory()
    monkeypatch.setattr(sys, "platform", "win32")
    keep_freed_memory()
