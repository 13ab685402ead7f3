"""Nearest neighbours by cosine, with FAISS: exact, or approximate for large corpora.

In a large corpus an inverted file over 8-bit vectors proposes candidates, and their exact cosines
decide: relevances are always exact.
"""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from .embedding import Vectors

APPROXIMATE_FROM = 60_000
"""Number of vectors from which an index is searched approximately."""

_PROBES = 32
_TRAINING_PER_LIST = 39  # fewer, and FAISS warns that the clusters are poor


def build(vectors: Vectors, ids: NDArray[np.int64]) -> Any:
    """Return a searchable index of normalised `vectors` [n, d] (n > 0) with `ids` [n]."""
    n, dimension = vectors.shape
    inner: Any
    if n < APPROXIMATE_FROM:
        inner = faiss.IndexFlatIP(dimension)
    else:
        lists = max(1, min(int(2 * np.sqrt(n)), n // _TRAINING_PER_LIST))
        kind = f"IVF{lists},SQ8,RFlat"
        inner = faiss.index_factory(dimension, kind, faiss.METRIC_INNER_PRODUCT)
        sample = np.random.default_rng(0).permutation(n)[: max(lists * _TRAINING_PER_LIST, 256)]
        inner.train(vectors[np.sort(sample)])
        proposing: Any = faiss.downcast_index(inner.base_index)
        proposing.nprobe = min(_PROBES, lists)
    index = faiss.IndexIDMap(inner)
    index.add_with_ids(vectors, ids)
    return index


def write(index: Any, path: Path) -> None:
    """Write an index that `build` made; OSError if the disk refuses."""
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(str(error).strip().rsplit("\n", 1)[-1]) from error


def restore(path: Path) -> Any:
    """Return the index in a complete file of `write`, mapped into memory."""
    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)


def search(index: Any, query: Vectors, k: int) -> list[tuple[int, float]]:
    """Return ids and cosines of the `k` (or all) nearest to `query` [d], nearest first."""
    chosen = None
    if isinstance(faiss.downcast_index(index.index), faiss.IndexRefineFlat):
        chosen = faiss.IndexRefineSearchParameters()
        chosen.k_factor = max(4, 64 / k)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # one question is no work for several: the others would spin
    try:
        scores, ids = index.search(query[None], min(k, index.ntotal), params=chosen)
    finally:
        faiss.omp_set_num_threads(threads)
    return [(int(i), float(s)) for i, s in zip(ids[0], scores[0], strict=True) if i >= 0]
