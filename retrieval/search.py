"""Find the chunks that may answer a question, by cosine and words; omit outdated versions."""

import heapq
import math
import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import accumulate, permutations
from pathlib import PurePath
from typing import Literal

from .embedding import Vectors
from .store import FREQUENT, Chunk, Store

Search = Literal["hybrid", "dense", "words"]
"""The way in which chunks are chosen: see `Index.search`."""

_MOST_WORDS = 64  # of a question, the rarest
_LEAST_POOL = 50  # chunks of each order whose scores are fused
_WORDS = 0.5
"""Added to the cosine of a chunk with all words of the question. Between 0.4 and 0.6 at most one of
100 questions, by names, numbers or in other words, loses a chunk that cosines or words find."""
_VERSION = re.compile(r"\bv?\d\w*|\b(?:version|draft|final|new|old|copy)\b|\W+")


def search(
    store: Store, vector: Vectors, words: Mapping[str, float], k: int, by: Search, within: str = ""
) -> list[tuple[float, float, Chunk]]:
    """Return (cosine, order, chunk) of `k` chunks that may answer a question, highest order first.

    `vector` is the question's embedding, `words` its words with weights. `by` selects the score
    `order`, `within` the documents: see `Index.search`. A chunk is omitted if a newer version of
    its file has nearly the same chunk with as many of the question's words.
    """
    own = store.within(within) if within else None
    few = own is not None and len(own) <= 2 * FREQUENT
    pool = 2 * FREQUENT if few else max(4 * k, _LEAST_POOL)
    cosines = {} if by == "words" else store.nearest(vector, pool, own)
    shares = {} if by == "dense" else _shares(store, words, cosines, pool, own)
    missing = shares.keys() - cosines.keys()
    cosines |= store.nearest(vector, len(missing), missing)
    scores = dict(shares if by == "words" else cosines)
    if by == "hybrid":
        scores = {number: cosines[number] + _WORDS * shares[number] for number in cosines}
    best = heapq.nlargest(4 * k, scores, key=scores.__getitem__)
    chunks = store.chunks(best, within)
    old = {
        n
        for m, n in permutations(best, 2)
        if shares.get(m, -1.0) >= shares.get(n, 0.0) and _replaces(chunks[m], chunks[n])
    }
    best = heapq.nsmallest(
        k, {*best} - old, key=lambda n: (-scores[n], chunks[n].source, chunks[n].start)
    )
    return [(cosines[n], scores[n], chunks[n]) for n in best]


def _shares(
    store: Store,
    words: Mapping[str, float],
    near: Collection[int],
    pool: int,
    own: AbstractSet[int] | None,
) -> dict[int, float]:
    """Return by chunk the share of the words that it has, weighed by how rare they are.

    The chunks are those `near`, and the best `pool` that have words: of all of `own` if those are
    few, else of those that have a rare word or, if no word is rare, the two rarest together.
    """
    ((total,),) = store.run("SELECT chunks FROM manifest")
    counts = store.counts([*words])
    known = sorted(filter(counts.__getitem__, words), key=counts.__getitem__)[:_MOST_WORDS]
    weights = {
        word: weight * math.log((total + 1) / (counts[word] + 0.5))
        for word, weight in words.items()
        if word in known or not counts[word]
    }
    among, found = set(near), dict[str, Collection[int]]()
    if own is not None and len(own) <= 2 * FREQUENT:
        among |= own
    else:
        reach = accumulate(counts[word] for word in known)
        rare = [word for word, number in zip(known, reach, strict=True) if number <= FREQUENT]
        found = {word: store.chunks_with([word]) for word in rare}
        among.update(*found.values(), [] if rare or not known else store.chunks_with(known[:2]))
        among &= among if own is None else own
    shares, whole = dict.fromkeys(among, 0.0), sum(weights.values())
    for word in known:
        for number in among.intersection(found.get(word) or store.chunks_with([word], among)):
            shares[number] += weights[word] / whole
    best = heapq.nlargest(pool, filter(shares.get, shares), key=lambda n: (shares[n], -n))
    return {number: shares[number] for number in {*near, *best}}


def _replaces(newer: Chunk, other: Chunk) -> bool:
    """Return whether a chunk has 3/4 of the words of one in an older file of like name or title."""
    if newer.dated <= other.dated:
        return False
    if not _names(newer.source, newer.title) & _names(other.source, other.title):
        return False
    mine, others = set(newer.text.split()), set(other.text.split())
    return 4 * len(mine & others) >= 3 * max(len(mine), len(others))


@lru_cache(maxsize=4096)
def _names(source: str, title: str) -> frozenset[str]:
    """Return a file's name and a chunk's title without what differs between versions."""
    names = PurePath(source).stem.replace("_", " "), title
    return frozenset(_VERSION.sub("", name.lower()) for name in names) - {""}
