"""`perplexity`: what documents are worth, and how to aggregate them (DRAGON Fig. 5).

The first eighth of a window of text is the query: the better half of the 2k best chunks for it is
the cloud's, the other half the device's. The rest is predicted without documents; by CRCG, with one
side's k documents in the context; by DRCG, with all 2k, the least relevant left out if they do not
fit; and by DRAGON, p_t = η_l p_l + η_r p_r over a row per document (SPEC 1), with no codec between.
A small model gains from any text of the same kind in its context: CRCG and DRCG while it is short.
smollm2 is loaded without the bundled adapter, which is trained to answer and not for prose.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.model import LanguageModel
from retrieval.chunking import chunk
from scripts.lab.intervals import Interval, Row, averages, distinct, having
from scripts.lab.model_pair import without_adapter
from scripts.papers import charts
from scripts.papers.dragon.baselines.reading import RELEVANCE_TEMPERATURE, fitting
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.texts import Corpus, read_corpus

NAME = "perplexity"
SUMMARY = "Perplexity over the documents of each side (DRAGON Fig. 5; an hour)"
CLOCKS: tuple[Clock, ...] = ("real",)

WINDOW = 256
QUERY = WINDOW // 8
CHUNK_WORDS = 64
COUNTS = (1, 2, 4, 8, 16)
QUICK_COUNTS, QUICK_WINDOWS, QUICK_CHUNKS = (1, 2, 4), 6, 250
WINDOWS_PER_REPEAT = 4
ROWS = 8
"""Of one forward: bounds its memory."""

NONE, DRAGON = "no retrieval", "DRAGON"
LOOKS = {
    "CRCG/cloud": charts.Look(charts.GREEN, "o"),
    "CRCG/device": charts.Look(charts.GREY, "s"),
    "DRCG": charts.Look(charts.SKY, "^"),
    DRAGON: charts.Look(charts.ORANGE, "D"),
}


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per window, number of documents and method: nats per scored token."""
    model, scored = LanguageModel.load(without_adapter(settings.model)), WINDOW - QUERY
    counts = settings.size(COUNTS, QUICK_COUNTS)
    windows = settings.size(WINDOWS_PER_REPEAT * settings.repeats, QUICK_WINDOWS)
    corpus = read_corpus(settings.corpus or bundled.documents("cloud"))
    rows: list[Row] = []
    for number, window in enumerate(_windows(model, corpus, settings, windows, 2 * counts[-1])):
        same = {"corpus": corpus.name, "window": number, "tokens": scored}
        for documents, method, nats, read in _predict(model, *window, counts):
            own = {"documents": documents, "method": method, "documents_read": read}
            rows.append(same | own | {"nats_per_token": nats / scored})
        progress(number + 1, windows)
    return rows


def _windows(
    model: LanguageModel, corpus: Corpus, settings: Settings, count: int, documents: int
) -> Iterator[tuple[list[int], list[list[int]], NDArray[np.float32]]]:
    """Yield the tokens of windows, spread evenly, the documents found for each, and scores."""
    random = np.random.Generator(np.random.Philox(settings.seed))
    chunks = [
        text[start:end] for text in corpus.retrieved for start, end in chunk(text, CHUNK_WORDS)
    ]
    if settings.quick and len(chunks) > QUICK_CHUNKS:
        chunks = [chunks[index] for index in random.permutation(len(chunks))[:QUICK_CHUNKS]]
    embedder = load_embedder()
    vectors = embedder.encode(chunks)
    lines = corpus.evaluated.splitlines(keepends=True)
    tokens = [token for line in lines for token in model.encode(line)]
    room = max(len(tokens) - WINDOW, 0)
    start = random.integers(room // count + 1)
    for number in range(count):
        first = min(int(start) + number * (room // count), room)
        window = tokens[first : first + WINDOW]
        scores = vectors @ embedder.encode_question(model.decode(window[:QUERY]))
        best = np.argsort(-scores, kind="stable")[:documents]
        found = [model.encode(model.prompt.document_text("", chunks[index])) for index in best]
        yield window, found, scores[best]


def _predict(
    model: LanguageModel,
    tokens: list[int],
    documents: list[list[int]],
    scores: NDArray[np.float32],
    counts: Sequence[int],
) -> Iterator[tuple[int, str, float, int]]:
    """Yield documents a side, method, nats and documents read of every method."""
    room = model.context_length - len(tokens)
    each = log_likelihoods(model, documents, tokens)
    relevances = scores.astype(np.float64) / RELEVANCE_TEMPERATURE
    yield 0, NONE, -float(log_likelihoods(model, [[]], tokens).sum()), 0
    parts = {
        k: {"CRCG/cloud": (0, k), "CRCG/device": (k, 2 * k), "DRCG": (0, 2 * k)} for k in counts
    }
    # DRCG over k documents a side reads what the cloud alone does over 2k.
    different = sorted({part for each in parts.values() for part in each.values()})
    read = [fitting(documents[low:high], room) for low, high in different]
    together = log_likelihoods(model, [context for context, _ in read], tokens)
    found = {
        part: (-float(log_p.sum()), fitted)
        for part, (_, fitted), log_p in zip(different, read, together, strict=True)
    }
    for k in counts:
        for method, part in parts[k].items():
            yield k, method, *found[part]
        yield k, DRAGON, -float(mixed(each[: 2 * k], relevances[: 2 * k]).sum()), 2 * k


def mixed(log_p: NDArray[np.float64], relevances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log p_t of each token, [tokens], of log p per document [documents, tokens].

    Both sides' mixtures, weighed by η, are one mixture over all documents: ω̃_s(d) η_s is the
    softmax of all relevances (SPEC 1).
    """
    log_weights = relevances - np.logaddexp.reduce(relevances)
    found: NDArray[np.float64] = np.logaddexp.reduce(log_p + log_weights[:, None], axis=0)
    return found


def log_likelihoods(
    model: LanguageModel, documents: Sequence[list[int]], tokens: list[int]
) -> NDArray[np.float64]:
    """Return log p of each scored token behind each document: [documents, WINDOW - QUERY]."""
    scored = tokens[QUERY:]
    parts = []
    for first in range(0, len(documents), ROWS):
        stored = [model.document_kv(each) for each in documents[first : first + ROWS]]
        after = model.rows(stored, len(tokens)).extend_all(tokens[:-1])[QUERY - 1 :]
        each = [row.log_probabilities(np.array([t])) for row, t in zip(after, scored, strict=True)]
        parts.append(np.concatenate(each, axis=1).astype(np.float64))
    return np.concatenate(parts)


def perplexities(rows: Sequence[Row]) -> dict[tuple[int, str], Interval]:
    """Return exp of the mean nats per token by documents and method, with its interval."""
    means = averages(rows, "nats_per_token", "documents", "method")
    return {key: each.map(math.exp) for key, each in means.items()}


def over(rows: Sequence[Row], other: str) -> dict[tuple[int, str], Interval]:
    """Return perplexities over those of another method, by documents and method.

    Their interval is that of differences within a window: windows differ more than methods do.
    """
    nats = {
        (each["documents"], each["method"], each["window"]): each["nats_per_token"] for each in rows
    }
    differences: list[Row] = []
    for (k, method, window), own in nats.items():
        base = nats.get((0 if other == NONE else k, other, window))
        if base is not None and method != other:
            differences.append({"documents": k, "method": method, "difference": own - base})
    means = averages(differences, "difference", "documents", "method")
    return {key: each.map(math.exp) for key, each in means.items()}


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return perplexities, what they are over those of no retrieval and DRAGON, and gains."""
    found = perplexities(rows)
    gains = {}
    for k in sorted({row["documents"] for row in rows} - {0}):
        gain = {method: found[0, NONE].value - found[k, method].value for method in LOOKS}
        best = max(gain[method] for method in LOOKS if method != DRAGON)
        if best > 0:  # where no document fits, nothing is gained
            gains[f"{k} documents a side"] = round(gain[DRAGON] / best, 3)
    return {
        "corpus": rows[0]["corpus"],
        "windows": len(distinct(rows, "window")),
        "scored tokens": sum(row["tokens"] for row in having(rows, method=NONE)),
        "perplexity": _named(found),
        "over no retrieval": _named(over(rows, NONE)),
        "over DRAGON": _named(over(rows, DRAGON)),
        "DRAGON's gain over the next": gains | {"as reported": "1.9, 1.4"},
    }


def _named(found: Mapping[tuple[int, str], Interval]) -> dict[str, Any]:
    return {f"{k} {method}": each.to_json() for (k, method), each in found.items()}


def plot(rows: list[Row], path: Path) -> None:
    """Draw a line per method over the documents of each side: perplexity over no retrieval's."""
    found = over(rows, NONE)
    counts = sorted({k for k, _ in found})
    points = {
        (method, place): found[k, method] for place, k in enumerate(counts) for method in LOOKS
    }
    with charts.picture(path, legend=1 + len(LOOKS)) as (_, axes):
        axis = axes[0, 0]
        axis.axhline(1.0, color=charts.BLACK, linestyle=":", label=NONE)
        charts.lines(axis, points, LOOKS, apart=0.06)
        axis.set_xticks(range(len(counts)), [f"{k}" for k in counts])
        axis.set(
            xlabel="documents on each side",
            ylabel="perplexity, no retrieval = 1\n(mean, 95 % over windows)",
            title=f"{rows[0]['model']} on {rows[0]['corpus']}",
        )
