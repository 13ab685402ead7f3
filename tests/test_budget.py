"""How heavy each room may be, in lines of Python with docstrings and comments.

The numbers are the plan's, with a little slack. A room above its plan is marked with what would
bring it down; the mark goes when it is light enough.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SLACK = 1.03

INSTALLED = {
    "dragonrt": 750,
    "dragonrt/backends": 2400,
    "dragonrt/bundled": 150,
    "dragonrt/cli": 1300,
    "dragonrt/control": 600,
    "dragonrt/distributions": 1820,
    "dragonrt/link": 1600,
    "dragonrt/modes": 4400,
    "dragonrt/node": 3500,
    "dragonrt/privacy": 850,
    "dragonrt/sampling": 1200,
    "dragonrt/service": 2700,
    "dragonrt/testing": 1400,
    "dragonrt/traces": 1400,
    "dragonrt/wire": 1150,
    "retrieval": 2700,
}
BESIDE = {
    "scripts/bench": 3000,
    "scripts/campaign": 2000,
    "scripts/lab": 1600,
    "scripts/papers": 7000,
    "scripts/train": 3000,
    "tests": 26000,
}
DOCUMENTED = "each public name has a docstring, or says what it overrides: some 3 % of its lines"
ABOVE = {
    "dragonrt/backends": "the scheduler belongs to node; files that are made here to one writer",
    "dragonrt/cli": "what it composes belongs to a Python API",
    "dragonrt/control": DOCUMENTED,
    "dragonrt/link": DOCUMENTED,
    "dragonrt/modes": "settings and statistics of one mode stand in the base of all",
    "dragonrt/node": "its sides take whole settings; connections that are probed and resumed",
    "dragonrt/sampling": DOCUMENTED,
    "dragonrt/service": "three forms of an answer are three programs",
    "dragonrt/testing": DOCUMENTED,
    "dragonrt/wire": "its limits and errors are more than its messages",
    "scripts/bench": "sets of questions, and what reads them",
    "scripts/train": "controllers, verifiers, and the forms of an adapter's samples",
    "tests": "misbehaving sides are told by several rooms",
}
"""What brings a room down to its plan."""


def lines(folder: str) -> int:
    """Lines of a room; those of the package itself without its rooms."""
    pattern = "*.py" if folder == "dragonrt" else "**/*.py"
    return sum(
        len(path.read_text("utf-8").splitlines()) for path in ROOT.glob(f"{folder}/{pattern}")
    )


@pytest.mark.parametrize("room", [*INSTALLED, *BESIDE])
def test_no_room_exceeds_its_plan(room: str, request: pytest.FixtureRequest) -> None:
    if room in ABOVE:
        request.applymarker(pytest.mark.xfail(strict=True, reason=ABOVE[room]))
    assert lines(room) <= SLACK * {**INSTALLED, **BESIDE}[room]


def test_every_room_has_a_plan() -> None:
    rooms = {f"dragonrt/{path.parent.name}" for path in ROOT.glob("dragonrt/*/__init__.py")}
    assert rooms | {"dragonrt", "retrieval"} == set(INSTALLED)
