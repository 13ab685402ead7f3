"""The size of the project is a ratchet: no count of `budget.toml` may rise.

`python tests/test_budget.py` lowers each ceiling to today's count.
"""

import tomllib
from pathlib import Path

import pytest

from dragonrt.cli import app

ROOT = Path(__file__).parents[1]
CEILINGS = Path(__file__).with_name("budget.toml")
HEAD = "# Ceilings of test_budget.py. Blank lines let branches that lower neighbours merge.\n"


def lines(folder: str) -> int:
    """Lines of a room; `dragonrt` and `scripts` are counted without their rooms."""
    pattern = "*.py" if folder in ("dragonrt", "scripts") else "**/*.py"
    found = sum(
        len(path.read_text("utf-8").splitlines()) for path in ROOT.glob(f"{folder}/{pattern}")
    )
    return found - lines("tests/oracles") if folder == "tests" else found


def options(command: str) -> int:
    """Options that `--help-all` lists; `--no-` forms are part of theirs."""
    parsers = (app.meta, app[command])
    return sum(each.show for parser in parsers for each in parser.assemble_argument_collection())


def counts() -> dict[str, int]:
    """Return what is counted today, by the names of `budget.toml`."""
    rooms = {path.parent for path in ROOT.glob("dragonrt/*/__init__.py")}
    rooms |= {path.parent for path in ROOT.glob("scripts/*/__init__.py")}
    names = ["dragonrt", "retrieval", "scripts", "tests", "tests/oracles"]
    names += (path.relative_to(ROOT).as_posix() for path in rooms)
    installed = [path for top in ("dragonrt", "retrieval") for path in ROOT.glob(f"{top}/**/*.py")]
    pages = ROOT.glob("docs/**/*.md")
    return {
        **{f"lines of {name}": lines(name) for name in sorted(names)},
        "installed modules": len(installed),
        **{f"options of {name}": options(name) for name in ("device", "serve", "cloud")},
        "words of docs": sum(len(path.read_text("utf-8").split()) for path in pages),
    }


@pytest.fixture(scope="module")
def today() -> dict[str, int]:
    return counts()


def test_no_count_exceeds_its_ceiling(today: dict[str, int]) -> None:
    ceilings = tomllib.loads(CEILINGS.read_text("utf-8"))
    above = {name: count for name, count in today.items() if count > ceilings.get(name, 0)}
    assert not above, f"above {CEILINGS.name}: {above}"


def test_each_ceiling_is_of_something_counted(today: dict[str, int]) -> None:
    assert tomllib.loads(CEILINGS.read_text("utf-8")).keys() == today.keys()


def lower() -> None:
    """Rewrite the ceilings: each at most what is counted today."""
    old = tomllib.loads(CEILINGS.read_text("utf-8"))
    new = {name: min(count, old.get(name, count)) for name, count in counts().items()}
    entries = (f'\n"{name}" = {number}\n' for name, number in new.items())
    CEILINGS.write_text(HEAD + "".join(entries), "utf-8")


if __name__ == "__main__":
    lower()
