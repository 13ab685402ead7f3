"""Files that only their owner can read."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from retrieval import Index, RetrievalError
from retrieval.files import create, escaped, make_directory, network_drive, read_bytes


@pytest.fixture(autouse=True)
def _a_generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("existed", [False, True])
def test_a_file_becomes_private_if_it_was_open_to_others(tmp_path: Path, existed: bool) -> None:
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
    told = [escaped(name) for name in names]
    assert all(name.isprintable() for name in told)
    assert len(set(told)) == len(names)
    assert told[0] == "a b"
    assert told[5] == "日本"


def test_the_innermost_mount_decides_if_a_drive_is_remote(tmp_path: Path) -> None:
    mounts, home = tmp_path / "mounts", tmp_path / "my notes"
    (home / "local").mkdir(parents=True)
    place = str(home).replace(" ", "\\040")
    mounts.write_text(
        f"none / ext4 rw 0 0\nhost:/x {place} nfs4 rw 0 0\nnone {place}/local tmpfs rw 0 0\n"
    )
    found = [network_drive(each, mounts) for each in (tmp_path, home / "new", home / "local")]
    assert found == ["", "nfs4", ""]
    assert network_drive(home, tmp_path / "none") == ""


def test_an_index_that_a_network_drive_refuses_names_the_drive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "index.sqlite").mkdir()
    for drive in ("", "nfs4"):
        monkeypatch.setattr("retrieval.sqlite_store.network_drive", lambda path, drive=drive: drive)
        with pytest.raises(RetrievalError) as refused:
            Index.open(tmp_path)
        assert ("nfs4" in str(refused.value)) == bool(drive)
