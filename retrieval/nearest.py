"""Nearest neighbours by cosine, with FAISS: exact, or approximate for large corpora.

An exact scan of 384-dimensional vectors takes 8 ms at 60,000 (one core); from there on an inverted
file over 8-bit vectors proposes candidates, and their exact cosines, by the stored vectors, decide.
A relevance is therefore always exact.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

APPROXIMATE_FROM = 60_000
"""Number of vectors from which an index is searched approximately."""

_PROBES = 32
_TRAINING_PER_LIST = 39  # fewer, and FAISS warns that the clusters are poor

Vectors = NDArray[np.float32]


def build(vectors: Vectors, ids: NDArray[np.int64]) -> Any:
    """A searchable index over normalised `vectors` [n, d] (n > 0), which have `ids` [n]."""
    import faiss

    inner = _approximate(vectors) if len(vectors) >= APPROXIMATE_FROM else _exact(vectors)
    index = faiss.IndexIDMap(inner)
    index.add_with_ids(vectors, ids)
    return index


def write(index: Any, path: Path) -> None:
    """Write an index that `build` made.

    Raises:
        OSError: the disk refuses.
    """
    import faiss

    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(str(error).strip().rsplit("\n", 1)[-1]) from error


def restore(path: Path) -> Any:
    """The index in a whole file of `write`; it stays on disk until searched."""
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)


def search(index: Any, query: Vectors, k: int) -> list[tuple[int, float]]:
    """Ids and cosines of the `k` (or all) nearest to `query` [d], nearest first."""
    import faiss

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


def _exact(vectors: Vectors) -> Any:
    import faiss

    return faiss.IndexFlatIP(vectors.shape[1])


def _approximate(vectors: Vectors) -> Any:
    import faiss

    n, dimension = vectors.shape
    lists = max(1, min(int(2 * np.sqrt(n)), n // _TRAINING_PER_LIST))
    proposing = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimension),
        dimension,
        lists,
        faiss.ScalarQuantizer.QT_8bit,
        faiss.METRIC_INNER_PRODUCT,
    )
    sample = np.random.default_rng(0).permutation(n)[: max(lists * _TRAINING_PER_LIST, 256)]
    proposing.train(np.ascontiguousarray(vectors[np.sort(sample)]))
    proposing.nprobe = min(_PROBES, lists)
    return faiss.IndexRefineFlat(proposing)
