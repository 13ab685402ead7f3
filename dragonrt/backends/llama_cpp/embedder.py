"""Load embedding models, which turn texts into vectors: the bundled one, or from GGUF files."""

import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import LifoQueue

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
_SHORT = 512
"""The most tokens of texts that are encoded at once, one by each thread: at 2048 the scores of a
model of 16 heads take 268 MB for each."""
_POOLED = (1, 2, 3)  # by the mean, the first or the last token


def load_embedder(
    name: str = DEFAULT, threads: int | None = None, library: Path | None = None
) -> Embedder:
    """Load an embedding model: "default" (bundled), a GGUF file, or one of sentence-transformers.

    GGUF models embed texts as they are. Others may put a prompt before each text.

    Args:
        threads: how many embed documents, by default `usual_threads()`: one thread per text, or all
            for one text after another if the model reads over 512 tokens. A question gets one.
        library: the file of llama.cpp's library, by default that of an installed package.

    Raises RetrievalError if there is no such model, or it is no embedding model.
    """
    try:
        path = bundled_directory() if name == DEFAULT else file_of(name)
        if name != DEFAULT and path.suffix != ".gguf" and not path.is_file():
            return Embedder.load(name)
        # The bundled model's vectors are those of sentence-transformers: it has their fingerprint.
        version = fingerprint(path)
        path = embedder_file(path, version) if name == DEFAULT else path
        threads = usual_threads() if threads is None else threads
        model = _Model(load_library(library), path, threads)
    except ModelError as error:
        raise RetrievalError(str(error)) from error
    return Embedder(name, version, model.documents, partial(model.encode, threads=1))


class _Model:
    """An embedding model and its contexts, of which each has a text at a time. Thread-safe."""

    def __init__(self, library: Library, path: Path, threads: int) -> None:
        """Load a GGUF file. Raises ModelError."""
        self._library, self._model = library, LlamaModel(library, path)
        self._limit = min(self._model.context_length, _LONGEST)
        self._threads, self._at_once = threads, threads if self._limit <= _SHORT else 1
        first = self._context()
        if not first or library.pooling_type(first) not in _POOLED:
            raise ModelError(f"{path} is no embedding model: its file names no pooling")
        self._end = self._model.tokens("", framed=True)[-1:]
        self._free = LifoQueue[int | None]()  # None: not made yet
        for context in (*[None] * (self._at_once - 1), first):
            self._free.put(context)

    def _context(self) -> int:
        options = self._library.context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = self._limit
        context: int = self._library.init_from_model(self._model.pointer, options)
        weakref.finalize(self, self._model.free, context).atexit = False
        if context:
            self._library.set_embeddings(context, True)
        return context

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return embeddings as `encode` does, with all threads.

        Threads that share a forward wait for each other at each layer: a fifth of their time.
        """
        at_once = max(1, min(self._at_once, len(texts)))
        with ThreadPoolExecutor(at_once) as pool:
            one = partial(self.encode, threads=self._threads // at_once)
            rows = [*pool.map(one, ([text] for text in texts))]
        return np.concatenate([np.zeros((0, self._model.hidden_size), np.float32), *rows])

    def encode(self, texts: Sequence[str], threads: int) -> NDArray[np.float32]:
        """Return pooled embeddings, float32 [texts, dimension]; texts are cut to the context.

        A text has the same bits in every batch. A text without tokens is zero.
        """
        vectors = np.zeros((len(texts), self._model.hidden_size), np.float32)
        context = self._free.get()
        try:
            context = context or self._context()
            if not context:
                raise RetrievalError("there is no memory to embed with so many threads")
            self._library.set_n_threads(context, threads, threads)
            # One forward per text: several are no faster on a CPU, and would change the bits.
            for vector, text in zip(vectors, texts, strict=True):
                if (tokens := self._model.tokens(text, framed=True)).size:
                    vector[:] = self._forward(context, self._cut(tokens))
        finally:
            self._free.put(context)
        return vectors

    def _cut(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return tokens that fit the context, with the token that ends each text, if any."""
        if tokens.size <= self._limit:
            return tokens
        end = self._end[self._end == tokens[-1:]]
        return np.concatenate([tokens[: self._limit - end.size], end])

    def _forward(self, context: int, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        count = tokens.size
        places, sequence = np.arange(count, dtype=np.int32), np.zeros(1, np.int32)
        sequences = np.full(count, sequence.ctypes.data, np.uintp)
        arrays = (places, np.ones(count, np.int32), sequences, np.ones(count, np.int8))
        batch = Batch(count, tokens.ctypes.data, None, *(each.ctypes.data for each in arrays))
        memory = self._library.get_memory(context)  # none of an encoder
        self._library.memory_clear(memory, False)
        if self._library.decode(context, batch):
            raise RetrievalError(f"the embedding model fails at a text of {count} tokens")
        found = self._library.get_embeddings_seq(context, 0)
        return np.ctypeslib.as_array(found, (self._model.hidden_size,))
