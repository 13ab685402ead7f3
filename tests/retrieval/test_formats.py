"""Office documents, books and mail: written by libraries, read as documents."""

import mailbox
import os
import sys
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from retrieval import DocumentError, Embedder, Index, Parser, RetrievalError, ingestion, office
from retrieval.documents import load

from .conftest import pdf_with


def test_word_headings_and_tables(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    file = docx.Document()
    file.add_heading("Ferries", 0)
    file.add_heading("Prices", 1)
    table = file.add_table(2, 2)
    for row, cells in enumerate((("Adults", "12"), ("Dogs", "3"))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    file.core_properties.title = "Boats"
    file.save(str(tmp_path / "a.docx"))
    document = load(tmp_path / "a.docx")
    assert document.text == "Ferries\n\nPrices\n\nAdults\t12\nDogs\t3"
    assert document.name(20) == "Boats › Prices"
    assert [document.text[a:b] for a, b in document.tables] == ["Adults\t12\nDogs\t3"]


def test_open_document(tmp_path: Path) -> None:
    odfdo = pytest.importorskip("odfdo")
    file = odfdo.Document("text")
    file.body.clear()
    file.body.append(odfdo.Header(1, "Ferries"))
    file.body.append(odfdo.Paragraph("The ferry leaves at nine."))
    file.body.append(odfdo.Header(2, "Prices"))
    table = odfdo.Table("Prices", width=2, height=1)
    table.set_value("A1", "Adults")
    table.set_value("B1", 12)
    file.body.append(table)
    file.save(tmp_path / "a.odt")
    document = load(tmp_path / "a.odt")
    assert document.text == "Ferries\n\nThe ferry leaves at nine.\n\nPrices\n\nAdults 12"
    assert document.name(len(document.text)) == "Ferries › Prices"


DOCLING = """
from types import SimpleNamespace as Of
from docling.datamodel.base_models import DocumentStream

def item(label, text="", page=0, **more):
    words = {"text": text} if text else {}
    return Of(label=label, prov=[Of(page_no=page)] if page else [], **words, **more)

class DocumentConverter:
    def convert(self, source):
        assert isinstance(source, DocumentStream)
        rows = [[Of(text=cell) for cell in row] for row in (("Adults", "12"), ("Dogs",))]
        items = [
            item("picture", page=1),
            item("title", "Boats", 1),
            item("section_header", "Prices", 1, level=1),
            item("text", "In euros.", 1),
            item("table", page=3, data=Of(grid=rows)),
            item("footnote", "Dogs need a lead.", 3),
            item("text", "Ask on board."),
        ]
        return Of(document=Of(iterate_items=lambda: ((each, 1) for each in items)))
"""


@pytest.fixture
def docling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docling as it is documented, with one document; for the process that reads, too."""
    package = tmp_path / "installed" / "docling"
    (package / "datamodel").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "document_converter.py").write_text(DOCLING)
    stream = "class DocumentStream:\n    def __init__(self, name, stream): ...\n"
    (package / "datamodel" / "base_models.py").write_text(stream)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=os.pathsep)
    for name in [name for name in sys.modules if name.partition(".")[0] == "docling"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(office, "_docling", office._docling.__wrapped__)


@pytest.mark.usefixtures("docling")
def test_docling_gives_headings_tables_and_pages(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").touch()
    document = load(tmp_path / "a.pdf", "docling")
    assert document.text == (
        "Boats\n\nPrices\n\nIn euros.\n\nAdults\t12\nDogs\n\nDogs need a lead.\n\nAsk on board."
    )
    assert [document.text[a:b] for a, b in document.tables] == ["Adults\t12\nDogs"]
    assert document.name(document.text.index("lead")) == "Boats › Prices"
    words = ("euros", "Adults", "lead", "board")
    assert [document.page(document.text.index(word)) for word in words] == [1, 3, 3, 3]


@pytest.mark.usefixtures("docling")
def test_a_pdf_is_read_again_by_another_parser(
    tmp_path: Path, documents: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pypdfium2")
    monkeypatch.setattr(ingestion, "_SETTLED_NS", 0)
    (documents / "boats.pdf").write_bytes(pdf_with("The boats are blue.", "Boats"))
    index = tmp_path / "index"
    texts, known = [], []
    for parser, changed in (("pdfium", 0), ("docling", 1), ("docling", 0), ("pdfium", 1)):
        chosen: Parser = "docling" if parser == "docling" else "pdfium"
        assert Index.update(index, documents, embedder, parser=chosen).changed == changed
        opened = Index.open(index)
        texts.append(next(c.text for c in opened.chunks() if c.source == "boats.pdf"))
        known.append(opened.fingerprint())
    assert texts[0] == texts[3] != texts[1] == texts[2]
    assert known[0] == known[3] != known[1] == known[2]


def test_a_parser_that_is_not_installed_is_refused_with_its_cure(
    tmp_path: Path, documents: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "docling", None)
    with pytest.raises(RetrievalError, match=r"pip install '\.\[docling\]'") as caught:
        Index.update(tmp_path / "index", documents, embedder, parser="docling")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "index").exists()


def test_slides_are_pages(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx")
    file = pptx.Presentation()
    for title, body in (("Ferries", "At nine."), ("Museums", "Closed.")):
        slide = file.slides.add_slide(file.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = body
    slide.notes_slide.notes_text_frame.text = "Say it twice."
    file.save(str(tmp_path / "a.pptx"))
    document = load(tmp_path / "a.pptx")
    assert document.text == "Ferries\n\nAt nine.\n\nMuseums\n\nClosed.\n\nSay it twice."
    assert document.page(document.text.index("twice")) == 2
    assert document.name(len(document.text)) == "Ferries › Museums"


def test_sheets_are_tables(tmp_path: Path) -> None:
    xlsxwriter = pytest.importorskip("xlsxwriter")
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        for name, rows in (("Prices", [["Adults", 12], ["Dogs", 3.5]]), ("Empty", [])):
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    document = load(tmp_path / "a.xlsx")
    assert document.text == "Prices\n\nAdults\t12\nDogs\t3.5"
    assert document.tables == ((8, 26),)


def epub(path: Path, opf: str) -> Path:
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="EPUB/a.opf"/></rootfiles></container>'
    )
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("META-INF/container.xml", container)
        book.writestr("EPUB/a.opf", opf)
        book.writestr(
            "EPUB/text/one 1.xhtml", "<html><body><h1>One</h1><p>First.</p></body></html>"
        )
        book.writestr("EPUB/text/two.xhtml", "<html><body><h1>Two</h1><p>Second.</p></body></html>")
    return path


def test_a_book_is_read_along_its_spine(tmp_path: Path) -> None:
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<metadata><dc:title>The Glass Orchard</dc:title></metadata><manifest>"
        '<item id="b" href="text/two.xhtml"/><item id="a" href="text/one%201.xhtml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
    )
    document = load(epub(tmp_path / "a.epub", opf))
    assert document.text == "One\n\nFirst.\n\nTwo\n\nSecond."
    assert document.name(len(document.text)) == "The Glass Orchard › Two"


def message(subject: str, text: str, html: str = "") -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = subject, "Tom <tom@example.org>", "me@example.org"
    mail["Date"] = "Sat, 21 Nov 2026 20:00:00 +0000"
    mail.set_content(html or text, subtype="html" if html else "plain")
    if not html:
        mail.add_attachment(b"\x00\x01", maintype="application", subtype="octet-stream")
    return mail


HEADERS = "From: Tom <tom@example.org>\nTo: me@example.org\nDate: Sat, 21 Nov 2026 20:00:00 +0000"


def test_a_mailbox_has_a_section_for_each_message(tmp_path: Path) -> None:
    box = mailbox.mbox(tmp_path / "a.mbox")
    box.add(message("Cheese", "First."))
    box.add(message("Wine", "", "<p>Second <b>one</b>.</p>"))
    box.close()
    document = load(tmp_path / "a.mbox")
    assert document.text == f"Cheese\n\n{HEADERS}\n\nFirst.\n\nWine\n\n{HEADERS}\n\nSecond one."
    assert document.name(len(document.text)) == "Cheese › Wine"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.pdf", "PDF"),
        ("a.docx", "Word"),
        ("a.odt", "OpenDocument"),
        ("a.pptx", "PowerPoint"),
        ("a.xlsx", "Excel"),
        ("a.epub", "EPUB"),
    ],
)
@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 broken", b"%PDF-1.4 broken", b"\xff" * 5000])
def test_a_broken_file_has_a_reason_in_one_line(
    tmp_path: Path, name: str, kind: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DocumentError, match=f"is not a readable {kind} file: .") as caught:
        load(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "opf", ["<package/>", "<package", "<package><spine><x/></spine></package>"]
)
def test_a_book_without_pages_has_a_reason(tmp_path: Path, opf: str) -> None:
    with pytest.raises(DocumentError):
        load(epub(tmp_path / "a.epub", opf))


@pytest.mark.parametrize("suffix", [".eml", ".mbox"])
@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff", b"From \nContent-Type: text/plain; charset=x\n\n\xff"]
)
def test_mail_that_is_none_is_no_failure(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    try:
        assert load(path).text
    except DocumentError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either is right)
