"""Whether the file that answers a question is found: by meaning, by words and by both.

The corpus is generated (see `forms`) from a seed that nothing was tuned on: articles, and notes
that share most of their words. Each file is newer than the one before.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np

from dragonrt.backends.llama_cpp.embedder import load_embedder
from retrieval import Index, Retriever, Search
from retrieval.questions import in_context
from scripts.bench.forms import Article, articles, similar
from scripts.lab.harness import benchmark, interval, series
from scripts.lab.intervals import Row, estimate

MOST = 8


@benchmark(
    {"questions": "{questions}", "search": "{search}", "ms": "{ms[median]:.0f}"}
    | {f"recall@{k}": interval(f"at_{k}") for k in (2, MOST)},
    note="Part of the questions whose file is among the first 2 and 8 chunks, with bootstrap "
    "95 % intervals, and the median time of a search, the question's embedding included.",
)
def retrieval(
    *, count: int = 2000, questions: int = 100, follow_ups: int = 40, seed: int = 2026
) -> Iterator[Row]:
    """Yield the recall of each kind of question; there are 1.5 notes for each article."""
    made, embedder = [*articles(seed, count), *similar(seed, count * 3 // 2)], load_embedder()
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        documents, where = Path(folder) / "articles", Path(folder) / "index"
        documents.mkdir()
        for number, article in enumerate(made):
            path = documents / f"{number}.md"
            path.write_text(article.text, encoding="utf-8")
            os.utime(path, (86400 * number,) * 2)
        Index.update(where, documents, embedder)
        index = Index.open(where)
        asked = _questions(made, questions, follow_ups, seed)
        searches: tuple[Search, ...] = get_args(Search)
        for kind, search in product(asked, searches):
            retriever = Retriever(index, embedder, search=search)
            found, times = [], []
            for question, file in asked[kind]:
                start = time.perf_counter()
                hits = [hit.chunk.source for hit in retriever.retrieve(question, MOST)]
                times.append(1e3 * (time.perf_counter() - start))
                found.append((hits, file))
            yield {"questions": kind, "search": search, "ms": series(times)} | {
                f"at_{k}": estimate([float(f in hits[:k]) for hits, f in found], "mean").to_json()
                for k in (2, MOST)
            }


def _questions(
    made: Sequence[Article], count: int, follow_ups: int, seed: int
) -> dict[str, list[tuple[str, str]]]:
    """Return questions and the files that answer them, by kind."""
    order = np.random.default_rng(seed).permutation(len(made))
    kinds = sorted({each.kind for each in made if each.question})
    of = {kind: [i for i in order if made[i].kind == kind] for kind in kinds}
    asked = {kind: [(made[i].question, f"{i}.md") for i in of[kind][:count]] for kind in kinds}
    later = of["names and numbers"][count : count + follow_ups]
    alone = [(made[i].follow_up, f"{i}.md") for i in later]
    joined = [(in_context(made[i].follow_up, [(made[i].question, "")]), f"{i}.md") for i in later]
    return asked | {"follow-ups, alone": alone, "follow-ups, in context": joined}
