"""A model whose rows copy their documents, and documents that hold different values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dragonrt.backends.agreement import Agreement
from dragonrt.backends.backend import SHARED_TOKENS, Feed
from dragonrt.backends.mixture import Mixture, Weighing
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.transformers_.backend import TorchLogits
from dragonrt.modes.prefix import extended, start_hash

PAIRS = [
    ("1|,|2|4|0| pounds", "9|,|9|9|0| pounds"),
    ("1|2|4", "1|2|9|5"),
    ("1|4| March| |2|0|2|1", "2|7| May| |2|0|1|9"),
    ("1|4| mars| |2|1", "2|7| mai| |1|9"),
    ("2|0|-|1|1|-|0|6", "2|0|-|0|3|-|1|8"),
    ("K|7|-|4|1|-|B", "K|9|-|3|2|-|A"),
    ("3| hours| |2|0", "4| hours| |5|0"),
    ("0|5|5| |3|1", "0|3|1| |8|6"),
    (" Ire|ne| Kim", " Iv|an| Kow|al"),
    (" An|na| B|ach", " Ka|ro| M|oss"),
]
START = start_hash(7)
VOCABULARY = ["", *sorted({piece for pair in PAIRS for text in pair for piece in text.split("|")})]
AGREEMENT = Agreement(lambda tokens: "".join(VOCABULARY[n] for n in tokens), len(VOCABULARY))


class Copying:
    """Implements Backend: each row copies its document, whatever stands in the text.

    It says what its document has at the same place with probability 0.95, and ends with 0.04.
    """

    def __init__(self) -> None:
        self.fed: list[int] = []
        self.info: Any = SimpleNamespace(
            device="cpu",
            vocabulary=len(VOCABULARY),
            context_length=999,
            exact_tokens=None,
            question_piece=1,
            shared_tokens=SHARED_TOKENS,
        )

    def open(self, documents: Sequence[Any], capacity: int) -> "Written":
        return Written([each.text for each in documents])

    def forward(self, feeds: Sequence[Feed]) -> Sequence[Sequence[TorchLogits]]:
        return [self._after(feed) for feed in feeds]

    def _after(self, feed: Feed) -> list[TorchLogits]:
        self.fed.append(len(feed.tokens))
        feed.rows.tokens[feed.length :] = feed.tokens
        last = len(feed.rows.tokens)
        first = feed.length + 1 if feed.every else last
        return [self._at(feed.rows, length - 1) for length in range(first, last + 1)]

    def _at(self, rows: "Written", place: int) -> TorchLogits:
        p = np.full((len(rows.texts), len(VOCABULARY)), 1e-4)
        for row, text in enumerate(rows.texts):
            p[row, 0] += 0.04
            p[row, text[place] if place < len(text) else 0] += 0.95
        return TorchLogits(torch.log(torch.tensor(p / p.sum(axis=1, keepdims=True))), torch.eye(1))


@dataclass
class Written:
    """Implements Rows."""

    texts: Sequence[Sequence[int]]
    tokens: list[int] = field(default_factory=list)

    def reserve(self, tokens: int) -> None: ...


def numbered(text: str) -> list[int]:
    return [VOCABULARY.index(piece) for piece in text.split("|")]


def cache(
    *texts: str, agrees: bool = True, bare: bool = False, backend: Copying | None = None
) -> PrefixCache:
    """One side with these documents, of which the second weighs twice as much.

    If `bare`, the last one has the weight 0.
    """
    documents: Any = [SimpleNamespace(length=0, text=numbered(text)) for text in texts]
    made: Any = backend or Copying()
    by = AGREEMENT if agrees else None
    scores = np.log(1.0 + np.arange(len(texts)))
    scores[len(texts) - bare :] = -np.inf
    weighing = Weighing(scores)
    return PrefixCache(lambda: RowSet(made, documents, 64), [0], START, weighing, by)


def after(side: PrefixCache, tokens: Sequence[int], first: int | None = None) -> list[Mixture]:
    hashes = extended([START], tokens)
    return side.read(list(tokens), hashes, len(tokens) if first is None else first)
