"""A deterministic embedding model without weights, and a directory of documents."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval import Embedder, Index, Report
from retrieval.ingestion import FoundFiles


@dataclass
class WordHashes:
    """A bag of hashed words: texts with common words are near each other. Counts its work."""

    dimension: int = 64
    encoded: list[str] = field(default_factory=list)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.encoded += texts
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                digest = hashlib.sha256(word.strip(".,?!").encode()).digest()
                vectors[row, digest[0] % self.dimension] += 1 if digest[1] < 128 else -1
        return vectors

    def embedder(self, fingerprint: str = "words-1") -> Embedder:
        return Embedder("words", fingerprint, self, self)


@pytest.fixture
def hashes() -> WordHashes:
    return WordHashes()


@pytest.fixture
def embedder(hashes: WordHashes) -> Embedder:
    return hashes.embedder()


@dataclass(frozen=True)
class Shelf:
    """A directory of documents, and the place of their index."""

    documents: Path
    where: Path
    embedder: Embedder

    def update(
        self,
        documents: Path | Sequence[Path] | FoundFiles | None = None,
        embedder: Embedder | None = None,
        **how: Any,
    ) -> Report:
        named = self.documents if documents is None else documents
        return Index.update(self.where, named, embedder or self.embedder, **how)

    def open(self) -> Index:
        return Index.open(self.where)

    def found(self, question: str, k: int = 1) -> list[str]:
        """The files of the chunks that are nearest to a question."""
        hits = self.open().search(self.embedder.encode_question(question), k)
        return [hit.chunk.source for hit in hits]


@pytest.fixture
def shelf(tmp_path: Path, documents: Path, embedder: Embedder) -> Shelf:
    return Shelf(documents, tmp_path / "index", embedder)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "travel").mkdir(parents=True)
    (folder / "ferry.txt").write_text("The ferry leaves at nine from the north quay.")
    (folder / "museum.md").write_text("# Museum\n\nThe museum of glass is closed on Mondays.")
    (folder / "travel" / "flight.txt").write_text("My flight departs from gate B12 at noon.")
    (folder / "travel" / "hotel.html").write_text("<p>The hotel keeps luggage until evening.</p>")
    return folder


def pdf_with(text: str, title: str) -> bytes:
    """A minimal one-page PDF, written by hand."""
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 200] /Contents 4 0 R"
        " /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>",
    ]
    out = "%PDF-1.4\n"
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 6 0 R >>\nstartxref\n{start}\n"
    return (out + "%%EOF\n").encode("latin-1")
