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


def cases(kind: str) -> list[tuple[str, str]]:
    return [(name, text) for name, how in EXPECTED.items() for text in how.get(kind, ())]


@pytest.mark.parametrize(("name", "text"), cases("contains"))
def test_what_is_read_in_a_file_is_in_its_text(name: str, text: str) -> None:
    assert text in read(name).text


@pytest.mark.parametrize(("name", "text"), cases("not"))
def test_what_nobody_reads_is_not(name: str, text: str) -> None:
    assert text not in read(name).text


@pytest.mark.parametrize(("name", "text"), cases("once"))
def test_what_is_there_once_is_read_once(name: str, text: str) -> None:
    assert read(name).text.count(text) == 1


@pytest.mark.parametrize("name", [name for name, how in EXPECTED.items() if "order" in how])
def test_text_is_in_the_order_of_its_places(name: str) -> None:
    places = [read(name).text.index(text) for text in EXPECTED[name]["order"]]
    assert places == sorted(places)


@pytest.mark.parametrize("name", [name for name, how in EXPECTED.items() if "title" in how])
def test_a_file_has_its_title(name: str) -> None:
    assert read(name).title == EXPECTED[name]["title"]


@pytest.mark.parametrize("name", [name for name, how in EXPECTED.items() if "sections" in how])
def test_headings_are_those_of_the_file(name: str) -> None:
    titles = dict.fromkeys(title for _, title, *_ in pieces(read(name), 1000))
    own = [title for title in titles if title != read(name).title]
    found = [title.removeprefix(f"{read(name).title} › ") for title in own]
    assert found == [each for each in EXPECTED[name]["sections"] if each != read(name).title]


@pytest.mark.parametrize("name", [name for name, how in EXPECTED.items() if "unread" in how])
def test_what_is_not_read_is_counted(name: str) -> None:
    assert read(name).unread == EXPECTED[name]["unread"]


@pytest.mark.parametrize("name", [name for name, how in EXPECTED.items() if "reason" in how])
def test_what_cannot_be_read_has_its_reason(name: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(name)
    assert EXPECTED[name]["reason"] in str(caught.value)
    assert "\n" not in str(caught.value)
