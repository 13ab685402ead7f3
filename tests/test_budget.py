"""How heavy each room may be, in lines of Python with docstrings and comments.

A change that exceeds its room deletes something, or changes the number here and says why in its
commit. Whoever makes a room lighter lowers its number.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INSTALLED = {
    "dragonrt": 346,
    "dragonrt/bundled": 138,
    "dragonrt/cli": 1448,
    "dragonrt/control": 925,
    "dragonrt/distributions": 1900,
    "dragonrt/experiments": 1334,
    "dragonrt/language": 5019,
    "dragonrt/link": 1700,
    "dragonrt/modes": 5127,
    "dragonrt/runtime": 4590,
    "dragonrt/sampling": 1477,
    "dragonrt/service": 2639,
    "dragonrt/testing": 855,
    "dragonrt/traces": 1999,
    "dragonrt/wire": 1729,
    "retrieval": 3035,
}
BESIDE = {
    "scripts/bench": 4200,
    "scripts/campaign": 2200,
    "scripts/papers": 8000,
    "scripts/train": 6700,
    "tests": 32000,
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
