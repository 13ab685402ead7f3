"""The default number of threads, in groups with a CPU quota."""

from pathlib import Path

import pytest

from dragonrt.backends.threads import usual_threads


@pytest.mark.parametrize(
    ("membership", "files", "threads"),
    [
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "350000 100000"}, 3),
        ("0::/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "700000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/outside", {"cpu.max": "250000 100000"}, 2),
        ("0::/a", {"a/cpu.max": "max 100000"}, 6),
        ("0::/a", {"a/cpu.max": "900000 100000"}, 6),
        (
            "4:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"},
            4,
        ),
        (
            "4:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"},
            6,
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
    membership_file = tmp_path / "proc/self/cgroup"
    membership_file.parent.mkdir(parents=True)
    membership_file.write_text(f"{membership}\n", encoding="ascii")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="ascii")
    assert usual_threads(root=tmp_path) == threads
