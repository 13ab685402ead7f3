"""The demonstration as a user starts it: two real processes, sample documents, a fresh index."""

import os
import re
import subprocess
import sys

import pytest

from dragonrt.bundled import questions

PROGRAM = """
from dragonrt import bundled
from dragonrt.cli import main

first, bundled.questions = bundled.questions()[:2], lambda: first
main()
"""
OPTIONS = "demo --seed 1 --temperature 0.8 --max-tokens 10 --model dragon-small --link 5ms"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user whose data directory is empty at first, beside a checkout that is not a package."""
    home = tmp_path_factory.mktemp("home")
    (home / "dragonrt").mkdir()
    return {
        **os.environ,
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "DRAGONRT_HTTP_PORT": "1",  # settings of the user's own must not reach the cloud
        "COLUMNS": "80",
        "TERM": "dumb",
    }


def start(environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, *OPTIONS.split()],
        env=environment,
        cwd=environment["HOME"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_four_methods_give_the_oracles_texts(environment: dict[str, str]) -> None:
    shown, errors = start(environment).communicate(timeout=60)
    lines = shown.splitlines()
    assert [line.split("  ")[0] for line in lines[-20:] if "coupled, " in line] == [
        "coupled, greedy",
        "coupled, leaderless",
    ], errors
    assert len(re.findall(r"\b2 of 2$", shown, re.MULTILINE)) == 3
    assert re.search(r"^synchronous .* oracle$", shown, re.MULTILINE)
    moved = []
    for question in questions()[:2]:
        bits = re.search(rf"^{re.escape(question.text)} +(\d+|-) +(\d+|-) *$", shown, re.MULTILINE)
        assert bits is not None
        moved.append(bits.groups())
        assert shown.count(question.text) == 2, "and the question itself"
    assert set(moved) != {("-", "-")}, "whose documents moved the answers"
    for line in (r"^device  \d+ private notes \(", r"^cloud   \d+ public articles \("):
        assert re.search(line, shown, re.MULTILINE)
    assert "dragonrt demo --ask" in lines[-2]
    found = re.search(r"in process (\d+), 127", shown)
    assert found is not None
    assert has_ended(int(found[1]))
