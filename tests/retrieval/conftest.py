"""A deterministic embedding model without weights, and a directory of documents."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval import Embedder


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


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "travel").mkdir(parents=True)
    (folder / "ferry.txt").write_text("The ferry leaves at nine from the north quay.")
    (folder / "museum.md").write_text("# Museum\n\nThe museum of glass is closed on Mondays.")
    (folder / "travel" / "flight.txt").write_text("My flight departs from gate B12 at noon.")
    (folder / "travel" / "hotel.html").write_text("<p>The hotel keeps luggage until evening.</p>")
    return folder
