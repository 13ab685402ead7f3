"""The text files of templates and word lists: `== name` opens a block, `#` a comment."""

from functools import lru_cache
from pathlib import Path

_TEXT = Path(__file__).parent / "text"


def read_blocks(name: str) -> dict[str, list[str]]:
    """The lines of every block of a text file, in the order of the file."""
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in _TEXT.joinpath(name).read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            current = blocks.setdefault(line[3:], [])
        elif line and not line.startswith("#"):
            current.append(line)
    return blocks


def read_lines(name: str) -> list[str]:
    """The lines of a text file without blocks."""
    lines = _TEXT.joinpath(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@lru_cache(maxsize=1)
def word_lists() -> dict[str, list[str]]:
    """The lists of words.txt by name."""
    return {name: " ".join(lines).split(" | ") for name, lines in read_blocks("words.txt").items()}
