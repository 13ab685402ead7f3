"""Rooms are counted until they are gone, and the usual bound is a part of the memory."""

from pathlib import Path

import pytest

from dragonrt.backends.kv_pool import KvPool, usual_limit
from dragonrt.errors import ModelError
from dragonrt.wire.reasons import BusyError, Reason


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
    ("groups", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "4000"}, 1000),
        ("0::/a/b\n", {"a/b/memory.max": "400", "a/memory.max": "4000"}, 100),
        ("0::/\n", {"memory.max": "4000"}, 1000),
        ("0::/../c\n", {"memory.max": "4000"}, 1000),
        ("2:cpu:/a\n9:memory:/a/b\n0::/\n", {"memory/a/memory.limit_in_bytes": "4000"}, 1000),
        ("9:memory:/a\n", {"memory/memory.limit_in_bytes": "4000"}, 1000),
    ],
)
def test_the_usual_bound_is_that_of_the_tightest_group(
    groups: str, files: dict[str, str], limit: int, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    whole = usual_limit(None, tmp_path)
    assert 2**26 < whole < 2**45
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    assert usual_limit(None, tmp_path) == limit
    assert usual_limit(800, tmp_path) == 200
