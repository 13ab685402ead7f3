"""Office documents, books and mail: written by libraries, read as documents."""

import zipfile
from pathlib import Path

import pytest

from retrieval import DocumentError, Embedder, Index
from retrieval.chunking import pieces
from retrieval.documents import load

from .conftest import pdf_with


def test_a_chunk_of_a_pdf_is_cited_by_its_page(tmp_path: Path, embedder: Embedder) -> None:
    pypdfium2 = pytest.importorskip("pypdfium2")
    (tmp_path / "documents").mkdir()
    with pypdfium2.PdfDocument.new() as both:
        for words in ("The boats of the harbour.", "A dog pays three."):
            with pypdfium2.PdfDocument(pdf_with(words, "")) as page:
                both.import_pages(page)
        both.save(tmp_path / "documents" / "a.pdf")
    Index.update(tmp_path / "index", tmp_path / "documents", embedder, words=8)
    (about,) = [c for c in Index.open(tmp_path / "index").chunks() if "dog" in c.text]
    assert about.citation == "The boats of the harbour., page 2"


def epub(path: Path, opf: str) -> Path:
    page = "<html><head><title>{}</title></head><body>{}</body></html>"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="EPUB/a.opf"/></rootfiles></container>',
        )
        book.writestr("EPUB/a.opf", opf)
        book.writestr("EPUB/text/one 1.xhtml", page.format("1", "<h1>One</h1><p>First.</p>"))
        book.writestr("EPUB/two.xhtml", page.format("Two", "<p>Second.</p>"))
        book.writestr("EPUB/three.xhtml", page.format("Two", "<p>Third.</p>"))
    return path


def test_a_book_is_read_along_its_spine_with_headings_of_pages(tmp_path: Path) -> None:
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<metadata><dc:title>The Glass Orchard</dc:title></metadata><manifest>"
        '<item id="b" href="two.xhtml"/><item id="a" href="text/one%201.xhtml"/>'
        '<item id="c" href="three.xhtml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine></package>'
    )
    document = load(epub(tmp_path / "a.epub", opf))
    assert document.text == "One\n\nFirst.\n\nTwo\n\nSecond.\n\nThird."
    assert [title for _, title, *_ in pieces(document)][-1] == "The Glass Orchard › Two"


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.odt", "a.pptx", "a.xlsx", "a.epub"])
@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 broken"])
def test_a_broken_file_has_a_reason_in_one_line(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        load(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "opf", ["<package/>", "<package", "<package><spine><x/></spine></package>"]
)
def test_a_book_without_pages_has_a_reason(tmp_path: Path, opf: str) -> None:
    with pytest.raises(DocumentError):
        load(epub(tmp_path / "a.epub", opf))
