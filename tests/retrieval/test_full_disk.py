"""A disk that is full: one line, and nothing that a cache would be missed for.

A real file system of half a megabyte, where one can be mounted.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dragonrt.traces.events import Record
from dragonrt.traces.file import TraceFile, start
from retrieval import KvStore, RetrievalError


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(where)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(where: Path) -> Path:
    with (where / "full").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return where / "full"
    raise AssertionError("it has no bound")


def test_a_cache_of_kv_leaves_nothing_half_written(small: Path) -> None:
    kv = KvStore(small, "model")
    kv.write("a" * 32, {"keys": np.zeros(10)})
    fill(small)
    with pytest.raises(RetrievalError):
        kv.write("b" * 32, {"keys": np.random.default_rng(0).random(100_000)})
    assert kv.stored() == {"a" * 32}
    assert len([*(small / "kv" / "model").iterdir()]) == 1


def test_a_trace_ends_and_no_answer_with_it(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    trace = TraceFile(small / "trace")
    fill(small)
    for _ in range(3):
        trace.write(Record(0.0, "device", 0, start("model" * 2000)))
    trace.close()
    assert len(caplog.messages) == 1
