"""What an index of 50,000 chunks costs: to open, to search, to keep up to date.

The chunks are of generated words, and their vectors are drawn at random: embedding them all would
take a quarter of an hour and change nothing that is measured.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.llama_cpp.embedder import load_embedder
from retrieval import Index, Search
from scripts.bench.harness import benchmark, series
from scripts.papers.intervals import Row

PER_FILE, WORDS, SEARCHES, UPDATES = 10, 64, 60, 5


@benchmark(
    {"milliseconds": "{what}", "median": "{ms[median]:.1f}", "p95": "{p95_ms:.1f}"},
    note="Opened in a new process, and searched by vectors that are there. An update is one file "
    "of ten chunks that has changed, libraries loaded.",
)
def index(*, chunks: int = 50_000, seed: int = 2026) -> Iterator[Row]:
    """Yield the times of an index of so many chunks."""
    embedder, rng = load_embedder(), np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(sorted({"".join(rng.choice(letters, 7)) for _ in range(20_000)}))
    dimension = embedder.encode_question("a").size

    def text() -> str:
        """Paragraphs of a chunk each, of words as unevenly common as those of a language."""
        places = np.minimum(rng.zipf(1.2, (PER_FILE, WORDS)) - 1, len(words) - 1)
        return "\n\n".join(" ".join(words[line]) + "." for line in places)

    def drawn(texts: Sequence[str]) -> NDArray[np.float32]:
        return rng.standard_normal((len(texts), dimension), dtype=np.float32)

    with tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        documents, where = Path(folder) / "documents", Path(folder) / "index"
        documents.mkdir()
        for number in range(chunks // PER_FILE):
            (documents / f"{number}.txt").write_text(text(), encoding="utf-8")
        Index.update(where, documents, replace(embedder, documents=drawn), WORDS)
        questions = [" ".join(rng.choice(words[200:], 8)) for _ in range(SEARCHES)]
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            vectors = embedder.encode(questions)
            times = pool.submit(_read, where, vectors, questions).result()
        times["one changed file"] = []
        for _ in range(UPDATES):
            (documents / "7.txt").write_text(text(), encoding="utf-8")
            start = time.perf_counter()
            Index.update(where, documents, embedder, WORDS)
            times["one changed file"].append(_ms_since(start))
    for what, samples in times.items():
        yield {"what": what, "ms": series(samples), "p95_ms": float(np.percentile(samples, 95))}


def _ms_since(start_s: float) -> float:
    return 1000 * (time.perf_counter() - start_s)


def _read(
    where: Path, vectors: NDArray[np.float32], questions: Sequence[str]
) -> dict[str, list[float]]:
    """Open the index and search it, in this process, where nothing of it is in memory."""
    start = time.perf_counter()
    index = Index.open(where)
    index.search(vectors[0], 4)
    found = {"start, to the first hits": [_ms_since(start)]}
    searches: tuple[Search, ...] = get_args(Search)
    for by in searches:
        times = found[f"search, {by}"] = []
        for vector, question in zip(vectors, questions, strict=True):
            start = time.perf_counter()
            index.search(vector, 4, question, by)
            times.append(_ms_since(start))
    return found
