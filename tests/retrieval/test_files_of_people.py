"""What files say: each case is a text that a person reads in a file, or does not.

`documents` has files as people have them, by LibreOffice, python-docx, openpyxl, reportlab, the
email module and by hand; expected.json is the table.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from retrieval import DocumentError
from retrieval.blocks import Document
from retrieval.chunking import pieces
from retrieval.documents import load

FILES = Path(__file__).with_name("documents")
EXPECTED: dict[str, dict[str, Any]] = json.loads((FILES / "expected.json").read_text("utf-8"))


@cache
def read(name: str) -> Document:
    return load(FILES / name)


def headings(document: Document) -> list[str]:
    titles = dict.fromkeys(title for _, title, *_ in pieces(document, 1000))
    return [each.removeprefix(f"{document.title} › ") for each in titles if each != document.title]


def cases(*kinds: str) -> list[tuple[str, str, Any]]:
    """The cases of some kinds: the name of a file, the kind, and a text."""
    return [
        (name, kind, text)
        for name, how in EXPECTED.items()
        for kind in kinds
        for text in (how[kind] if isinstance(how.get(kind), list) else [how.get(kind)])
        if text is not None
    ]


@pytest.mark.parametrize(("name", "kind", "text"), cases("contains", "not", "once"))
def test_a_file_says_what_people_read_in_it(name: str, kind: str, text: str) -> None:
    found = read(name).text.count(text)
    assert {"contains": found > 0, "not": not found, "once": found == 1}[kind], read(name).text


@pytest.mark.parametrize(("name", "kind", "text"), cases("title", "unread"))
def test_a_file_has_its_title_and_counts(name: str, kind: str, text: str) -> None:
    assert getattr(read(name), kind) == text


@pytest.mark.parametrize(("name", "kind", "text"), cases("reason"))
def test_what_cannot_be_read_has_its_reason(name: str, kind: str, text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(name)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, how in EXPECTED.items() if "order" in how])
def test_text_is_in_the_order_of_its_places(name: str) -> None:
    places = [read(name).text.index(text) for text in EXPECTED[name]["order"]]
    assert places == sorted(places)


@pytest.mark.parametrize("name", [name for name, how in EXPECTED.items() if "sections" in how])
def test_headings_are_those_of_the_file(name: str) -> None:
    assert headings(read(name)) == [t for t in EXPECTED[name]["sections"] if t != read(name).title]
