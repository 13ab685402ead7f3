"""The usual threads and memory, also in control groups, and rooms that are counted."""

from pathlib import Path

import pytest

from dragonrt.backends.resources import KvPool, usual_limit, usual_threads
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError, Reason


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n", encoding="ascii")


def grouped(root: Path, membership: str, files: dict[str, str]) -> None:
    """Write the control groups of a process, and files of them."""
    written(root, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    written(root, {"proc/self/cgroup": membership})


def test_a_room_is_counted_until_nothing_refers_to_it() -> None:
    pool = KvPool(100)
    rooms = [pool.room(40), pool.room(60)]
    assert pool.used == 100
    with pytest.raises(BusyError) as busy:
        pool.room(1)
    assert busy.value.reason is Reason.BUSY
    with pytest.raises(ModelError):
        pool.room(101)
    rooms.pop()
    assert pool.used == 40
    rooms.append(pool.room(60))
    rooms.clear()
    assert pool.used == 0


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "4000"}, 1000),
        ("0::/a/b", {"a/b/memory.max": "400", "a/memory.max": "4000"}, 100),
        ("0::/", {"memory.max": "4000"}, 1000),
        ("0::/../c", {"memory.max": "4000"}, 1000),
        ("2:cpu:/a\n9:memory:/a/b\n0::/", {"memory/a/memory.limit_in_bytes": "4000"}, 1000),
        ("9:memory:/a", {"memory/memory.limit_in_bytes": "4000"}, 1000),
    ],
)
def test_the_usual_bound_is_that_of_the_tightest_group(
    membership: str, files: dict[str, str], limit: int, tmp_path: Path
) -> None:
    assert 2**26 < usual_limit(None, tmp_path) < 2**45
    grouped(tmp_path, membership, files)
    assert usual_limit(None, tmp_path) == limit
    assert usual_limit(800, tmp_path) == 200


@pytest.mark.parametrize(
    ("membership", "files", "threads"),
    [
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "350000 100000"}, 3),
        ("0::/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "700000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/outside", {"cpu.max": "250000 100000"}, 2),
        ("0::/a", {"a/cpu.max": "900000 100000"}, 6),
        *(
            ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": quota}, threads)
            for quota, threads in (("400000", 4), ("-1", 6))
        ),
    ],
)
def test_a_cpu_quota_bounds_the_threads(
    membership: str,
    files: dict[str, str],
    threads: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    grouped(tmp_path, membership, {"cpu/a/cpu.cfs_period_us": "100000", **files})
    assert usual_threads(root=tmp_path) == threads


@pytest.mark.parametrize(
    ("cores", "alone", "shared"), [(1, 1, 1), (2, 2, 1), (8, 8, 4), (64, 8, 8)]
)
def test_two_processors_of_a_core_count_once(
    cores: int, alone: int, shared: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    processors, folder = range(2 * cores), "sys/devices/system/cpu"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(processors), raising=False)
    siblings = "topology/thread_siblings_list"
    written(tmp_path, {f"{folder}/cpu{n}/{siblings}": f"{n // 2}" for n in processors})
    assert usual_threads(root=tmp_path) == alone
    assert usual_threads(sides=2, root=tmp_path) == shared
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert usual_threads() == 3
