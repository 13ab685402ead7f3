"""Files of other programs are cited by their pages, and broken ones have a reason."""

from pathlib import Path

import pytest

from retrieval import DocumentError, Embedder, Index
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


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.odt", "a.pptx", "a.xlsx", "a.epub"])
@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 broken"])
def test_a_broken_file_has_a_reason_in_one_line(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        load(tmp_path / name)
    assert "\n" not in str(caught.value)
