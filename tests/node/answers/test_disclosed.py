"""What was told of earlier answers, over restarts."""

import json
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from dragonrt.node.answers import disclosed as disclosed_answers
from dragonrt.node.answers.disclosed import REMEMBERED, DisclosedAnswers
from retrieval.files import create

TURN = ("who?", "Tom")


def test_what_was_told_survives_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "told"
    DisclosedAnswers(path).remember(TURN, "…")
    DisclosedAnswers(path).remember(("b?", "yes"), "yes")
    again = DisclosedAnswers(path)
    assert (again.get(TURN), again.get(("b?", "yes")), again.get(("b?", "no"))) == (
        "…",
        "yes",
        None,
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert "Tom" not in path.read_text("utf-8")


def test_the_last_word_counts_and_damage_costs_only_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "told"
    told = DisclosedAnswers(path)
    told.remember(TURN, "Tom")
    told.remember(TURN, "…")
    with path.open("ab") as file:
        file.write(b'[1]\n\xc3(\n{\n["a", "b"]\n')
    assert DisclosedAnswers(path).get(TURN) == "…"
    path.write_bytes(b"\xff")
    assert DisclosedAnswers(path).get(TURN) is None


def test_the_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "told"
    told = DisclosedAnswers(path)
    for number in range(2 * REMEMBERED + 1):
        told.remember((str(number), ""), "x")
    kept = DisclosedAnswers(path)
    assert kept.get(("0", "")) is None
    assert kept.get((str(2 * REMEMBERED), "")) == "x"
    assert len([json.loads(line) for line in path.read_text("utf-8").splitlines()]) == REMEMBERED


def test_the_file_is_bounded_while_two_devices_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disclosed_answers, "LARGEST", 2**14)
    path = tmp_path / "told"
    devices = DisclosedAnswers(path), DisclosedAnswers(path)
    sizes = []
    for number in range(400):
        devices[number % 2].remember((str(number), ""), f"{number:0100}")
        sizes.append(path.stat().st_size)
    assert max(sizes) <= 2**13
    assert min(sizes[100:]) <= 2**12
    kept = DisclosedAnswers(path)
    assert all(kept.get((str(n), "")) == f"{n:0100}" for n in range(380, 400))
    assert kept.get(("0", "")) is None


def test_nothing_is_lost_that_another_device_writes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "told", list[threading.Thread]()

    def interrupted(file: Path) -> BinaryIO:
        """The file is read, and not yet written anew: the other one may write now."""
        others.append(threading.Thread(target=other.remember, args=(TURN, "…")))
        others[0].start()
        others[0].join(0.1)  # it writes at once, or waits for this one
        return create(file)

    told, other = DisclosedAnswers(path), DisclosedAnswers(path)
    monkeypatch.setattr(disclosed_answers, "LARGEST", 2**12)
    monkeypatch.setattr("dragonrt.node.answers.disclosed.create", interrupted)
    for number in range(100):
        told.remember((str(number), ""), "x")
        if others:
            break
    others[0].join()
    assert DisclosedAnswers(path).get(TURN) == "…"


def test_the_newest_are_kept_and_repeated_ones_are_new() -> None:
    told = DisclosedAnswers()
    told.remember(TURN, "Tom")
    for number in range(REMEMBERED - 1):
        told.remember((str(number), ""), "x")
    told.remember(TURN, "…")
    told.remember(("one", "more"), "x")
    assert (told.get(TURN), told.get(("0", "")), told.get(("1", ""))) == ("…", None, "x")
