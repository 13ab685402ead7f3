"""How heavy each room may be, in lines of Python with docstrings and comments.

A change that exceeds its room deletes something, or changes the number here and says why in its
commit. Whoever makes a room lighter lowers its number.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INSTALLED = {
    "dragonrt": 360,
    "dragonrt/bundled": 141,
    "dragonrt/cli": 1551,
    "dragonrt/control": 697,
    "dragonrt/distributions": 1874,
    "dragonrt/experiments": 1109,
    "dragonrt/backends": 4970,
    "dragonrt/link": 1711,
    "dragonrt/modes": 5491,
    "dragonrt/privacy": 595,
    "dragonrt/node": 4612,
    "dragonrt/sampling": 1200,
    "dragonrt/service": 3408,
    "dragonrt/testing": 1369,
    "dragonrt/traces": 1860,
    "dragonrt/wire": 1527,
    "retrieval": 3285,
}
BESIDE = {
    "scripts/bench": 2520,
    "scripts/campaign": 2162,
    "scripts/papers": 8684,
    "scripts/train": 7263,
    "tests": 31277,
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
