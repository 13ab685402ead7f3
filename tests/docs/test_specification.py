"""Every section of the specification that the code cites is there, and in its order."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "specification.md"
SECTION = r"\d(?:\.\d+)?"
CITATION = re.compile(rf"\bSPEC\b(?:\s+(?:section\s+)?({SECTION}(?:(?:,| -| to)\s{SECTION})*))?")


def sections() -> list[str]:
    """The numbers of the headings, as they follow one another."""
    return re.findall(rf"^##+ ({SECTION})\.? ", PAGE.read_text("utf-8"), re.MULTILINE)


def citations() -> list[tuple[str, str]]:
    """(file, cited sections) of every mention of SPEC outside this directory; "" where it has none.

    A citation may name several sections: "SPEC 1.3, 1.7", "SPEC 2 - 4", "SPEC 1.1 to 1.3".
    """
    files = [
        path
        for top in ("dragonrt", "retrieval", "tests", "scripts")
        for path in sorted((CHECKOUT / top).rglob("*.py"))
        if path.parent != Path(__file__).parent
    ]
    return [
        (path.name, found[1] or "")
        for path in files
        for found in CITATION.finditer(path.read_text("utf-8"))
    ]


def test_the_sections_are_numbered_without_a_gap() -> None:
    assert sections() == ["0", "1", *(f"1.{n}" for n in range(1, 12)), "2", "3", "4", "5"]


def test_every_cited_section_exists() -> None:
    cited = citations()
    assert len(cited) > 20
    missing = [
        (file, text)
        for file, text in cited
        if not text or not set(re.findall(SECTION, text)) <= set(sections())
    ]
    assert missing == []
