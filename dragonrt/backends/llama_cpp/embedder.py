"""Embedding models in GGUF files, the bundled one among them."""

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.llama_cpp.library import Batch, Library, LlamaModel, load_library
from dragonrt.backends.llama_cpp.model_file import embedder_file, file_of
from dragonrt.backends.resources import usual_threads
from dragonrt.errors import ModelError
from retrieval import Embedder, RetrievalError
from retrieval.embedding import DEFAULT, bundled_directory, fingerprint

_LONGEST = 2048
"""The most tokens of a text: memory grows with their square in models that allow more."""
_POOLED = (1, 2, 3)  # by the mean, the first or the last token


def load_embedder(
    name: str = DEFAULT, threads: int | None = None, library: Path | None = None
) -> Embedder:
    """Load "default" or a GGUF file (see `file_of`); others by sentence-transformers.

    A GGUF file puts no prompt before a text.

    Args:
        threads: that encode documents; by default those of a model. A question is encoded by one.
            The vectors do not depend on it.
        library: see `load_library`.

    Raises RetrievalError if there is no such model, or it is no embedding model.
    """
    try:
        path = bundled_directory() if name == DEFAULT else file_of(name)
        if name != DEFAULT and path.suffix != ".gguf" and not path.is_file():
            return Embedder.load(name)
        # The bundled model's vectors are those of sentence-transformers: it has their fingerprint.
        version = fingerprint(path)
        path = embedder_file(path, version) if name == DEFAULT else path
        model = _Model(load_library(library), path)
    except ModelError as error:
        raise RetrievalError(str(error)) from error
    documents = partial(model.encode, threads=usual_threads() if threads is None else threads)
    return Embedder(name, version, documents, partial(model.encode, threads=1))


class _Model:
    """An embedding model and its context. Any thread may call it."""

    def __init__(self, library: Library, path: Path) -> None:
        """Load a GGUF file. Raises ModelError."""
        self._library, self._lock = library, threading.Lock()
        self._model = LlamaModel(library, path)
        self._limit = min(self._model.context_length, _LONGEST)
        options = library.context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = self._limit
        self._context = library.init_from_model(self._model.pointer, options)
        weakref.finalize(self, library.free, self._context).atexit = False
        if not self._context or library.pooling_type(self._context) not in _POOLED:
            raise ModelError(f"{path} is no embedding model: its file names no pooling")
        library.set_embeddings(self._context, True)
        self._memory = library.get_memory(self._context)  # none of an encoder
        self._end = self._model.tokens("", framed=True)[-1:]

    def encode(self, texts: Sequence[str], threads: int) -> NDArray[np.float32]:
        """Return pooled embeddings, float32 [texts, dimension]; texts are cut to the context.

        A text has the same bits alone and beside any other texts. A text without tokens is zero.
        """
        vectors = np.zeros((len(texts), self._model.hidden_size), np.float32)
        with self._lock:
            self._library.set_n_threads(self._context, threads, threads)
            # One forward per text: several are no faster on a CPU, and would change the bits.
            for vector, text in zip(vectors, texts, strict=True):
                if (tokens := self._model.tokens(text, framed=True)).size:
                    vector[:] = self._forward(self._cut(tokens))
        return vectors

    def _cut(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return tokens that fit the context, with the token that ends each text, if any."""
        if tokens.size <= self._limit:
            return tokens
        end = self._end[self._end == tokens[-1:]]
        return np.concatenate([tokens[: self._limit - end.size], end])

    def _forward(self, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        count = tokens.size
        places, sequence = np.arange(count, dtype=np.int32), np.zeros(1, np.int32)
        sequences = np.full(count, sequence.ctypes.data, np.uintp)
        arrays = (places, np.ones(count, np.int32), sequences, np.ones(count, np.int8))
        batch = Batch(count, tokens.ctypes.data, None, *(each.ctypes.data for each in arrays))
        self._library.memory_clear(self._memory, False)
        if self._library.decode(self._context, batch):
            raise RetrievalError(f"the embedding model fails at a text of {count} tokens")
        found = self._library.get_embeddings_seq(self._context, 0)
        return np.ctypeslib.as_array(found, (self._model.hidden_size,))
