"""Every kind of document says where a chunk stands: by a page, or by the headings above it."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from retrieval import Embedder, Index


def write_pdf(path: Path) -> None:
    pypdfium2 = pytest.importorskip("pypdfium2")
    raw = pypdfium2.raw
    pdf = pypdfium2.PdfDocument.new()
    for words in ("The boats of the harbour. Adults pay twelve.", "A dog pays three."):
        page = pdf.new_page(400, 200)
        text = raw.FPDFPageObj_NewTextObj(pdf, b"Helvetica", 8.0)
        letters = words.encode("utf-16-le") + b"\0\0"
        raw.FPDFText_SetText(text, (raw.FPDF_WCHAR * (len(letters) // 2)).from_buffer_copy(letters))
        raw.FPDFPage_InsertObject(page, text)
        raw.FPDFPage_GenerateContent(page)
    pdf.save(str(path))


def write_docx(path: Path) -> None:
    docx = pytest.importorskip("docx")
    file = docx.Document()
    file.core_properties.title = "Boats"
    chapter = file.styles.add_style("Chapter", docx.enum.style.WD_STYLE_TYPE.PARAGRAPH)
    chapter.base_style = file.styles["Heading 1"]
    for title, words in (("Adults", "They pay twelve."), ("Dogs", "A dog pays three.")):
        file.add_paragraph(title, chapter)
        file.add_paragraph(words)
    file.save(str(path))


def write_epub(path: Path) -> None:
    container = (
        '<c xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="a.opf"/></rootfiles></c>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<metadata><dc:title>Boats</dc:title></metadata><manifest>"
        '<item id="a" href="a.xhtml"/><item id="b" href="b.xhtml"/><item id="c" href="c.xhtml"/>'
        '</manifest><spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine>'
        "</package>"
    )
    page = "<html><head><title>{}</title></head><body><p>{}</p></body></html>"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("META-INF/container.xml", container)
        book.writestr("a.opf", package)
        book.writestr("a.xhtml", page.format("Boats", "All prices in euros."))
        book.writestr("b.xhtml", page.format("Dogs", "Boats are let by the hour, " * 3))
        book.writestr("c.xhtml", page.format("Dogs", "A dog pays three."))


@pytest.mark.parametrize(
    ("name", "write", "citation"),
    [
        ("a.pdf", write_pdf, "The boats of the harbour. Adults pay twelve., page 2"),
        ("a.docx", write_docx, "Boats › Dogs"),
        ("a.epub", write_epub, "Boats › Dogs"),
    ],
)
def test_a_citation_names_the_page_or_the_headings(
    tmp_path: Path,
    embedder: Embedder,
    name: str,
    write: Callable[[Path], None],
    citation: str,
) -> None:
    (tmp_path / "documents").mkdir()
    write(tmp_path / "documents" / name)
    Index.update(tmp_path / "index", tmp_path / "documents", embedder, words=8)
    chunks = list(Index.open(tmp_path / "index").chunks())
    (about,) = [chunk for chunk in chunks if "dog" in chunk.text]
    assert about.citation == citation
