"""How heavy each room may be, in lines of Python with docstrings and comments.

A change that exceeds its room deletes something, or changes the number here and says why in its
commit. Whoever makes a room lighter lowers its number.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INSTALLED = {
    "dragonrt": 391,
    "dragonrt/bundled": 138,
    "dragonrt/cli": 1579,
    "dragonrt/control": 925,
    "dragonrt/distributions": 1900,
    "dragonrt/experiments": 1367,
    "dragonrt/backends": 5022,
    "dragonrt/link": 1847,
    "dragonrt/modes": 5544,
    "dragonrt/node": 5154,
    "dragonrt/sampling": 1481,
    "dragonrt/service": 3648,
    "dragonrt/testing": 861,
    "dragonrt/traces": 2041,
    "dragonrt/wire": 1724,
    "retrieval": 3613,
}
BESIDE = {
    "scripts/bench": 5018,
    "scripts/campaign": 2543,
    "scripts/papers": 8581,
    "scripts/train": 7153,
    "tests": 35957,
}


def lines(folder: str) -> int:
    """Lines of a room; those of the package itself without its rooms."""
    pattern = "*.py" if folder == "dragonrt" else "**/*.py"
    return sum(
        len(path.read_text("utf-8").splitlines()) for path in ROOT.glob(f"{folder}/{pattern}")
    )


@pytest.mark.parametrize(("room", "budget"), [*INSTALLED.items(), *BESIDE.items()])
def test_no_room_exceeds_its_budget(room: str, budget: int) -> None:
    assert lines(room) <= budget


def test_every_room_has_a_budget() -> None:
    rooms = {f"dragonrt/{path.parent.name}" for path in ROOT.glob("dragonrt/*/__init__.py")}
    assert rooms | {"dragonrt", "retrieval"} == set(INSTALLED)
