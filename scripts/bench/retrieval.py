"""Whether the article that answers a question is found: by meaning, by words and by both.

The corpus is generated (see `articles`) from a seed that nothing was tuned on.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console

from retrieval import Embedder, Index, Retriever, Search, in_context
from scripts.bench.articles import Article, Kind, articles
from scripts.bench.report import Series, bench_table, print_report
from scripts.papers.intervals import estimate

NOTE = (
    "Part of the questions whose article is among the first 2 and 8 chunks, with bootstrap 95 % "
    "intervals, and the median time of a search, the question's embedding included."
)
QUESTIONS, FOLLOW_UPS, MOST = 100, 40, 8


def bench_retrieval(
    *, output: Console, messages: Console, count: int = 2000, seed: int = 2026
) -> None:
    """Recall of 100 questions of each kind and of 40 follow-ups over `count` articles."""
    made = articles(seed, count)
    embedder = Embedder.load()
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        documents, where = Path(folder) / "articles", Path(folder) / "index"
        documents.mkdir()
        for number, article in enumerate(made):
            (documents / f"{number}.md").write_text(article.text, encoding="utf-8")
        with messages.status(f"indexing {count} articles"):
            Index.update(where, documents, embedder)
        index = Index.open(where)
        searches: tuple[Search, ...] = get_args(Search)
        retrievers = {search: Retriever(index, embedder, search=search) for search in searches}
        results = [
            _measured(retrievers[search], kind, search, asked)
            for kind, asked in _questions(made, seed).items()
            for search in searches
        ]
    table = bench_table("questions", "search", "recall@2", "recall@8", "ms")
    for row in results:
        recalls = [f"{r['mean']:.2f} ({r['low']:.2f}-{r['high']:.2f})" for r in row["recall"]]
        table.add_row(row["questions"], row["search"], *recalls, f"{row['ms']['median']:.0f}")
    print_report(output, "retrieval", table, results, seed=seed, note=NOTE)


def _questions(made: Sequence[Article], seed: int) -> dict[str, list[tuple[str, str]]]:
    """Questions and the files that answer them, by kind."""
    order = np.random.default_rng(seed).permutation(len(made))
    kinds: tuple[Kind, ...] = get_args(Kind)
    of = {kind: [i for i in order if made[i].kind == kind] for kind in kinds}
    asked: dict[str, list[tuple[str, str]]] = {
        kind: [(made[i].question, f"{i}.md") for i in of[kind][:QUESTIONS]] for kind in kinds
    }
    later = of["names and numbers"][QUESTIONS : QUESTIONS + FOLLOW_UPS]
    alone = [(made[i].follow_up, f"{i}.md") for i in later]
    joined = [(in_context(made[i].follow_up, [made[i].question]), f"{i}.md") for i in later]
    return asked | {"follow-ups, alone": alone, "follow-ups, in context": joined}


def _measured(
    retriever: Retriever, kind: str, search: Search, asked: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    found, times = [], []
    for question, _ in asked:
        start = time.perf_counter()
        hits = retriever.retrieve(question, MOST)
        times.append(1e3 * (time.perf_counter() - start))
        found.append([hit.chunk.source for hit in hits])
    recall = [
        estimate([float(file in f[:k]) for f, (_, file) in zip(found, asked, strict=True)], "mean")
        for k in (2, MOST)
    ]
    return {
        "questions": kind,
        "search": search,
        "recall": [interval.to_json() for interval in recall],
        "ms": Series(tuple(times)).to_json(),
    }
