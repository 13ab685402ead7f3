"""Keys as lines that people type, and the files they are in."""

import os
import stat
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.errors import LinkError
from dragonrt.link.shared_key import new_key, parse_key, read_key, renewal, write_secret

LINE = new_key(date(2027, 11, 21))


def test_a_line_is_easy_to_type() -> None:
    assert len(LINE) == 39
    assert LINE.count("-") == 7
    assert not set(LINE) & set("ilou")
    assert new_key(date(2027, 11, 21)) != LINE
    typed = LINE.upper().replace("-", " ").replace("0", "o").replace("1", "l")
    assert parse_key(f" {typed}\n") == LINE


@given(place=st.integers(0, 38), letter=st.sampled_from("0123456789abcdefghjkmnpqrstvwxyz"))
def test_a_mistyped_letter_is_noticed(place: int, letter: str) -> None:
    if LINE[place] in ("-", letter):
        return
    with pytest.raises(LinkError):
        parse_key(LINE[:place] + letter + LINE[place + 1 :])


@pytest.mark.parametrize(
    "typed",
    ["", "u" * 32, LINE[:-1], LINE + "0", "é" * 32, LINE[5:]],
    ids=["nothing", "no letters of a key", "short", "long", "no ASCII", "a group less"],
)
def test_what_is_no_line_is_refused(typed: str) -> None:
    with pytest.raises(LinkError):
        parse_key(typed)


def test_the_line_says_when_to_renew_it() -> None:
    assert renewal(LINE.encode()) == date(2027, 11, 1)
    assert renewal(b"f" * 64) is None
    assert renewal(b"\xff" * 39) is None
    with pytest.raises(LinkError):
        new_key(date(2400, 1, 1))


def test_a_file_holds_a_line_or_any_other_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(LINE.upper() + "\n")
    assert read_key(path) == LINE.encode()
    path.write_bytes(b"\xff" * 16 + b"\n")
    assert read_key(path) == b"\xff" * 16
    path.write_text(("1" if LINE[0] == "0" else "0") + LINE[1:])
    with pytest.raises(LinkError):
        read_key(path)
    path.write_text("short")
    with pytest.raises(LinkError):
        read_key(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"# My notes\n\nThe ferry leaves at nine.\n", "text of several words"),
        ("Ключ лежит под ковриком".encode(), "text of several words"),
        (b"-----BEGIN PRIVATE KEY-----\nMIIE\n", "certificate or its key"),
        (b"\xff" * 5000, "5000 bytes"),
        (b"x" * 5000, "text"),
    ],
)
def test_what_is_no_key_is_not_taken_for_one(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(content)
    with pytest.raises(LinkError):
        read_key(path)


def test_a_secret_is_its_owners_alone_and_never_overwritten(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_secret(tmp_path / "key", b"secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(LinkError):
        write_secret(tmp_path / "key", b"other")
    assert (tmp_path / "key").read_bytes() == b"secret"
    with pytest.raises(LinkError):
        write_secret(tmp_path / "none" / "key", b"other")
