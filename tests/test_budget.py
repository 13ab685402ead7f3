"""How heavy each room may be, in lines of Python with docstrings and comments.

A change that exceeds its room deletes something, or changes the number here and says why in its
commit. Whoever makes a room lighter lowers its number.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INSTALLED = {
    "dragonrt": 369,
    "dragonrt/bundled": 138,
    "dragonrt/cli": 1434,
    "dragonrt/control": 592,
    "dragonrt/distributions": 1815,
    "dragonrt/experiments": 1022,
    "dragonrt/backends": 3516,
    "dragonrt/link": 1604,
    "dragonrt/modes": 5046,
    "dragonrt/privacy": 589,
    "dragonrt/node": 4147,
    "dragonrt/sampling": 1174,
    "dragonrt/service": 3125,
    "dragonrt/testing": 1252,
    "dragonrt/traces": 1558,
    "dragonrt/wire": 1443,
    "retrieval": 2737,
}
BESIDE = {
    "scripts/bench": 3332,
    "scripts/campaign": 2171,
    "scripts/papers": 7467,
    "scripts/train": 5853,
    "tests": 28040,
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
