"""Re-ranking: a cross-encoder reads question and text together, slower and better than cosine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model_files import model_directory, quiet_loading


class Reranker:
    """A sentence-transformers cross-encoder."""

    def __init__(self, name: str, model: Any) -> None:
        """Use `Reranker.load`."""
        self.name = name
        self._model = model

    @classmethod
    def load(cls, name: str | Path, device: str = "cpu") -> "Reranker":
        """A cross-encoder with one output, by directory or Hugging Face id.

        Raises:
            RetrievalError: there is no such model, or the hub cannot be reached.
        """
        directory = model_directory(str(name))
        with quiet_loading():
            from sentence_transformers import CrossEncoder

            model = CrossEncoder(
                str(directory),
                num_labels=1,
                device=device,
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )
        return cls(str(name), model)

    def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """How well each text answers the question, float32 [texts], in (0, 1) for most models."""
        if not texts:
            return np.empty(0, dtype=np.float32)
        pairs = [(question, text) for text in texts]
        return np.asarray(self._model.predict(pairs, show_progress_bar=False), dtype=np.float32)
