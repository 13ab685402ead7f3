"""Files that only their owner can read."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrieval.files import create, make_directory, read_bytes, shown


@pytest.fixture(autouse=True)
def _a_generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("existed", [False, True])
def test_a_file_is_its_owners_alone_also_where_it_was_open_to_others(
    tmp_path: Path, existed: bool
) -> None:
    path = tmp_path / "file"
    if existed:
        path.write_bytes(b"longer than what follows")
        path.chmod(0o666)
    with create(path) as file:
        file.write(b"short")
    assert path.read_bytes() == b"short"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_new_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        create(tmp_path / "file", new=True)


def test_missing_directories_are_their_owners_alone(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b")
    assert {stat.S_IMODE((tmp_path / at).stat().st_mode) for at in ("a", "a/b")} == {0o700}


def test_a_file_above_the_bound_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError) as refused:  # noqa: PT011 - by its number
        read_bytes(tmp_path / "file", 4)
    assert refused.value.errno == errno.EFBIG


def test_a_shown_name_is_printable_and_like_no_other() -> None:
    names = "a b", "a\u00a0b", "a\u202fb", "a\\u202fb", "\U000e0001", "日本", os.fsdecode(b"\xfc")
    told = [shown(name) for name in names]
    assert all(name.isprintable() for name in told)
    assert len(set(told)) == len(names)
    assert told[0] == "a b"
    assert told[5] == "日本"
