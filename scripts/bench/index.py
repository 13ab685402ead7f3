"""What an index of 50,000 chunks costs: to open, to search, to keep up to date, beside an answer.

The chunks are of generated words, and their vectors are drawn at random: embedding them all would
take a quarter of an hour and change nothing that is measured. What is embedded while a time is
taken (questions, the file that changes, the files indexed beside an answer) is so by the model.
"""

import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from select import select
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from dragonrt import bundled
from dragonrt.errors import DragonError
from retrieval import Embedder, Index, Search
from retrieval.following import Order
from scripts.bench.articles import articles
from scripts.bench.memory import held_bytes
from scripts.bench.report import bench_table, print_report

NOTE = (
    "Opened in a new process, and searched by vectors that are there; the memory is what this adds "
    "to the process, over the vectors' own size. An update is one file of ten chunks that has "
    "changed, libraries loaded. Beside an answer, a process indexes as --watch does."
)
CHUNKS, PER_FILE, WORDS = 50_000, 10, 64
SEARCHES, UPDATES = 60, 5
ARTICLES, TOKENS = 1000, 200
"""Files that are indexed beside an answer; tokens of it that are timed alone, beside at most 20
times as many."""


@dataclass(frozen=True, slots=True)
class IndexSize:
    """How large an index, and how many files are indexed beside an answer."""

    chunks: int = CHUNKS
    articles: int = ARTICLES
    tokens: int = TOKENS


def bench_index(
    *, output: Console, messages: Console, size: IndexSize = IndexSize(), seed: int = 2026
) -> None:
    """The times, and the memory, of an index of `size.chunks`; ms per token beside indexing."""
    embedder = Embedder.load()
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        documents, where = Path(folder) / "documents", Path(folder) / "index"
        rng = np.random.default_rng(seed)
        with messages.status(f"indexing {size.chunks} chunks"):
            words = _write(documents, size.chunks, rng)
            drawn = _drawn(rng, embedder.encode_question(words[0]).size)
            Index.update(where, documents, replace(embedder, documents=drawn), WORDS)
        questions = [" ".join(rng.choice(words[200:], 8)) for _ in range(SEARCHES)]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            read = pool.submit(_read, where, embedder.encode(questions), questions).result()
        updates = [_update(where, documents, embedder, rng, words) for _ in range(UPDATES)]
    with messages.status("decoding beside an indexing process"):
        beside = _beside_indexing(size, seed)
    measured = read["ms"] | {
        "one changed file": [wall for wall, _ in updates],
        "processor time of it": [cpu for _, cpu in updates],
        **beside,
    }
    table = bench_table("milliseconds", "median", "p95")
    results: list[dict[str, Any]] = []
    for name, samples in measured.items():
        median, p95 = (float(np.percentile(samples, part)) for part in (50, 95))
        table.add_row(name, f"{median:.1f}", f"{p95:.1f}")
        results.append({"what": name, "times": len(samples), "median_ms": median, "p95_ms": p95})
    table.add_row("memory over the vectors' size", f"{read['memory']:.2f}", "")
    results.append({"chunks": size.chunks, "memory_over_vectors": read["memory"]})
    print_report(output, "index", table, results, seed=seed, note=NOTE)


def _text(rng: np.random.Generator, words: NDArray[np.str_], chunks: int) -> str:
    """Paragraphs of a chunk each, of words as unevenly common as those of a language."""
    places = np.minimum(rng.zipf(1.2, (chunks, WORDS)) - 1, len(words) - 1)
    return "\n\n".join(" ".join(words[line]) + "." for line in places)


def _write(documents: Path, chunks: int, rng: np.random.Generator) -> NDArray[np.str_]:
    """Documents of so many chunks together, and their words, the commonest first."""
    documents.mkdir()
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(sorted({"".join(rng.choice(letters, 7)) for _ in range(20_000)}))
    for number in range(chunks // PER_FILE):
        text = _text(rng, words, PER_FILE)
        (documents / f"{number}.txt").write_text(text, encoding="utf-8")
    return words


def _drawn(
    rng: np.random.Generator, dimension: int
) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Encodes texts as directions of no meaning."""
    return lambda texts: rng.standard_normal((len(texts), dimension), dtype=np.float32)


def _read(where: Path, vectors: NDArray[np.float32], questions: Sequence[str]) -> dict[str, Any]:
    """Open the index and search it, in this process, where nothing of it is in memory."""
    import faiss  # noqa: F401 - a library's memory is not an index's

    before = held_bytes()
    start = time.perf_counter()
    index = Index.open(where)
    index.search(vectors[0], 4)
    found: dict[str, list[float]] = {"start, to the first hits": [_ms_since(start)]}
    searches: tuple[Search, ...] = get_args(Search)
    for by in searches:
        times = found[f"search, {by}"] = []
        for vector, question in zip(vectors, questions, strict=True):
            start = time.perf_counter()
            index.search(vector, 4, question, by)
            times.append(_ms_since(start))
    return {"ms": found, "memory": (held_bytes() - before) / (len(index) * vectors.shape[1] * 4)}


def _update(
    where: Path,
    documents: Path,
    embedder: Embedder,
    rng: np.random.Generator,
    words: NDArray[np.str_],
) -> tuple[float, float]:
    """Milliseconds, by the clock and of the processor, of indexing one file anew."""
    (documents / "7.txt").write_text(_text(rng, words, PER_FILE), encoding="utf-8")
    start, processor = time.perf_counter(), time.process_time()
    Index.update(where, documents, embedder, WORDS)
    return _ms_since(start), 1000 * (time.process_time() - processor)


def _ms_since(start_s: float) -> float:
    return 1000 * (time.perf_counter() - start_s)


def _beside_indexing(size: IndexSize, seed: int) -> dict[str, list[float]]:
    """Milliseconds of every token alone, and while another process indexes articles."""
    decode = _decoding()
    for _ in range(10):
        next(decode)
    alone = [next(decode) for _ in range(size.tokens)]
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        documents, where = Path(folder) / "documents", Path(folder) / "index"
        documents.mkdir()
        for number, article in enumerate(articles(seed)[: size.articles]):
            (documents / f"{number}.md").write_text(article.text, encoding="utf-8")
        order = Order([str(documents)], str(where), "default", WORDS, None, "pdfium", (), 1e9, True)
        beside: list[float] = []
        with subprocess.Popen(
            [sys.executable, "-m", "retrieval.following"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as following:
            assert following.stdin is not None
            assert following.stdout is not None
            following.stdin.write(json.dumps(asdict(order)) + "\n")
            following.stdin.flush()
            following.stdout.readline()  # {}: it begins
            while len(beside) < 20 * size.tokens and not select([following.stdout], [], [], 0)[0]:
                beside.append(next(decode))
            said = next(line for line in following.stdout if not json.loads(line).get("left"))
            following.stdin.close()
    if json.loads(said).get("added") != size.articles:
        raise DragonError(f"the articles were not indexed: {said.strip()}")
    return {
        "a token alone": alone,
        f"a token beside {size.articles} files being indexed": beside,
    }


def _decoding() -> Iterator[float]:
    """Milliseconds of each token of dragon-small behind two documents, without an end."""
    from dragonrt.backends.model import LanguageModel
    from dragonrt.backends.reader import RowWeights

    model = LanguageModel.load("dragon-small", "cpu")
    paths = sorted(bundled.documents("cloud").glob("*.md"))[:2]
    stored = [model.document_kv(model.encode(path.read_text(encoding="utf-8"))) for path in paths]
    question = model.encode("Question: What is this?\nAnswer:")
    even = RowWeights([0.0] * len(stored)).logs
    for _ in count():
        sequence = model.sequence(stored, capacity=len(question) + 64)
        token = int(sequence.extend(question).mixed(even).argmax())
        for _ in range(63):
            start = time.perf_counter()
            token = int(sequence.extend([token]).mixed(even).argmax())
            yield _ms_since(start)
