import sys
from pathlib import Path

import pytest

from retrieval import DocumentError
from retrieval.chunking import pieces
from retrieval.documents import load

from .conftest import pdf_with


def written(tmp_path: Path, name: str, data: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_plain_text_is_titled_by_its_first_line(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "\ufeff\r\nGate codes\r\n\r\nNorth: 4182\r\n")
    document = load(path)
    assert (document.text, document.title) == ("Gate codes\n\nNorth: 4182", "Gate codes")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_text_of_other_encodings_is_read(tmp_path: Path, encoding: str) -> None:
    assert load(written(tmp_path, "a.txt", "Skærvøy café".encode(encoding))).text == "Skærvøy café"


def test_markdown_loses_its_marks_and_is_titled_by_its_heading(tmp_path: Path) -> None:
    source = (
        "Intro with **bold**, *italics*, `code` and 2 * 3, snake_case_name.\n\n"
        "## Opening *hours* ##\n\n* [The library](https://example.org 'x') opens at nine.\n"
        "\n<!-- draft -->\n```\nif it:\n    print('#')\n```\n\n"
        "| Day | Hour |\n|---|---|\n| Monday | nine |\n"
    )
    document = load(written(tmp_path, "a.md", source))
    assert document.title == "Opening hours"
    assert "Intro with bold, italics, code and 2 * 3, snake_case_name." in document.text
    assert "\nOpening hours\n\nThe library opens at nine.\n" in document.text
    assert "draft" not in document.text
    assert document.text.endswith("\n\nif it:\n    print('#')\n\nDay: Hour\nMonday: nine")


def test_html_keeps_what_is_read_and_drops_the_rest(tmp_path: Path) -> None:
    page = (
        "<html><head><title>The &amp; museum</title><style>p {}</style></head><body>"
        "<nav><ul><li>Home</ul></nav><h1>Hours</h1><p>Open\n  at <b>ten</b>.<br>Closed on "
        "Mondays.</p><script>var x = '<p>no</p>';</script>"
        "<table><tr><td>Adults<td>9</tr></table></body></html>"
    )
    document = load(written(tmp_path, "a.html", page))
    assert document.title == "The & museum"
    assert document.text == "Hours\n\nOpen at ten.\nClosed on Mondays.\n\nAdults: 9"


def test_an_unclosed_navigation_ends_with_what_holds_it(tmp_path: Path) -> None:
    page = "<main><nav>Home</main><p>Text</p>"
    assert load(written(tmp_path, "a.html", page)).text == "Text"


def test_a_declared_charset_is_used(tmp_path: Path) -> None:
    page = b"<meta charset='iso-8859-5'><p>\xbc\xd8\xe0"
    assert load(written(tmp_path, "a.html", page)).text == "Мир"


def test_pdf(tmp_path: Path) -> None:
    document = load(written(tmp_path, "a.pdf", pdf_with("The ferry leaves at nine.", "Ferries")))
    assert (document.text, document.title) == ("The ferry leaves at nine.", "Ferries")
    assert [page for *_, page in pieces(document)] == [1]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"\x00\x01\x02"),
        ("a.txt", b" \n "),
        ("a.pdf", pdf_with("", "Scan")),
        ("a.png", b"\x89PNG"),
        ("gone.txt", None),
    ],
)
def test_what_cannot_be_read_has_a_reason(tmp_path: Path, name: str, data: bytes | None) -> None:
    with pytest.raises(DocumentError) as caught:
        load(tmp_path / name if data is None else written(tmp_path, name, data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("suffix", "library"), [(".pdf", "pypdfium2"), (".pptx", "pptx")])
def test_a_missing_library_is_named_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DocumentError) as caught:
        load(written(tmp_path, f"a{suffix}", b"x"))
    assert "dragonrt[documents]" in str(caught.value)
