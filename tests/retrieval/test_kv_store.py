import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from retrieval import KvStore
from retrieval.kv_store import prune_kv, usual_limit


class Disk(NamedTuple):
    """What `shutil.disk_usage` returns, as far as it is read."""

    free: int


ARRAYS: dict[str, NDArray[Any]] = {
    "layer.0.keys": np.arange(24, dtype=np.uint16).reshape(2, 3, 4),
    "layer.0.values": np.linspace(0, 1, 6, dtype=np.float32).reshape(1, 6),
    "empty": np.empty((2, 0, 4), dtype=np.float16),
}


def test_the_default_limit_is_a_tenth_of_the_room_or_2_gb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = KvStore(tmp_path / "index", "m").write("d", ARRAYS)
    for free, limit in ((10**10, (10**10 + taken) / 10), (10**11, 2 * 10**9)):
        monkeypatch.setattr("shutil.disk_usage", lambda place, free=free: Disk(free))
        assert usual_limit(tmp_path / "index") == limit
        assert usual_limit(tmp_path / "not" / "there") <= limit


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=4),
        hnp.arrays(
            st.sampled_from([np.float32, np.uint16, np.int64]),
            hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=3),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_arrays_survive(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, NDArray[Any]]
) -> None:
    store = KvStore(tmp_path_factory.mktemp("kv"), "m")
    store.write("d", arrays)
    read = store.read("d")
    assert read is not None
    assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in read.items()} == {
        n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()
    }


def test_reading_is_private_and_writable(tmp_path: Path) -> None:
    store = KvStore(tmp_path, "m")
    store.write("abc", ARRAYS)
    first, second = store.read("abc"), store.read("abc")
    assert first is not None
    assert second is not None
    first["layer.0.values"][0, 0] = 7
    assert second["layer.0.values"][0, 0] == 0


def test_every_truncation_and_changed_byte_is_missing(tmp_path: Path) -> None:
    store = KvStore(tmp_path, "m")
    store.write("a", ARRAYS)
    path = store.directory / "a.safetensors"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert store.read("a") is None, length
    for place in (-1, -20, -100):
        path.write_bytes(bytes(byte ^ (at == place % len(whole)) for at, byte in enumerate(whole)))
        assert store.read("a") is None, place
    path.write_bytes(whole + b"x")
    assert store.read("a") is None
    path.write_bytes(whole)
    assert store.read("a") is not None


def test_pruning_leaves_no_trace_in_any_model(tmp_path: Path) -> None:
    for model in ("one", "two"):
        KvStore(tmp_path, model).write("dead", ARRAYS)
    KvStore(tmp_path, "one").write("live", ARRAYS)
    torn = tmp_path / "kv" / "one" / ".live.safetensors.1.tmp"
    torn.write_bytes(b"torn")
    prune_kv(tmp_path, ["live"])
    assert torn.exists(), "another process may be writing it"
    os.utime(torn, (0, 0))
    prune_kv(tmp_path, ["live"])
    assert [path.name for path in (tmp_path / "kv").rglob("*")] == ["one", "live.safetensors"]


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    KvStore(tmp_path, "one").write("dead", ARRAYS)
    folders = tmp_path / "kv", tmp_path / "kv" / "one"
    foreign = [folder / name for folder in folders for name in (".DS_Store", ".Trash.tmp")]
    for path in foreign:
        path.write_bytes(b"x")
    prune_kv(tmp_path, [])
    assert [path for path in (tmp_path / "kv").rglob("*") if path.is_file()] == foreign


def test_what_was_not_read_for_longest_goes_first(tmp_path: Path) -> None:
    sizes = {"x": np.zeros(1000, np.uint8)}
    one, two = KvStore(tmp_path, "one", limit=3500), KvStore(tmp_path, "two", limit=3500)
    for age, (store, digest) in enumerate([(one, "a"), (two, "b"), (one, "c")]):
        store.write(digest, sizes)
        os.utime(store.directory / f"{digest}.safetensors", ns=(age, age))
    one.read("a")  # now the last one used
    one.write("d", sizes)
    assert (one.stored(), two.stored()) == ({"a", "c", "d"}, set())
    assert 0 <= one.room() < 1000
    one.write("huge", {"x": np.zeros(4000, np.uint8)})
    assert one.stored() == {"a", "c", "d"}


def test_many_writers_exceed_the_limit_by_little(tmp_path: Path) -> None:
    """Nobody counts all files at every write; each leaves the others a part of the room."""
    writers = [KvStore(tmp_path, "m", limit=100_000) for _ in range(4)]
    for number in range(400):
        writers[number % 4].write(f"{number}", {"x": np.zeros(1000, np.uint8)})
        assert writers[0].room() >= -4 * 1200
    assert len(writers[0].stored()) > 50


def test_writers_that_share_a_directory_never_see_half_of_a_file(tmp_path: Path) -> None:
    """As containers do, all of whose processes have one number, while another one prunes."""
    arrays = {"x": np.arange(100_000)}
    ready = Barrier(4)

    def write() -> list[bool]:
        store = KvStore(tmp_path, "m")
        ready.wait()
        found = []
        for _ in range(20):
            store.write("d", arrays)
            prune_kv(tmp_path, ["d"])
            read = store.read("d")
            found.append(read is not None and np.array_equal(read["x"], arrays["x"]))
        return found

    with ThreadPoolExecutor(4) as threads:
        assert all(all(done.result()) for done in [threads.submit(write) for _ in range(4)])
    assert [path.name for path in (tmp_path / "kv" / "m").iterdir()] == ["d.safetensors"]
