"""Articles with questions in chunks as the product cuts them, and near misses of each chunk."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from random import Random

from retrieval.chunking import chunk

from .sample import UNKNOWN, Reading, Turn
from .values import word_set

Article = tuple[str, list[tuple[str, list[Turn]]]]  # title, paragraphs with their questions
_UNKNOWN_ONLY_LEFT_OUT = 0.8  # of the chunks that answer nothing
_POSITIVES = 7  # questions at most that a chunk answers


def _content(text: str) -> list[str]:
    """Return stems of the words that carry meaning."""
    stop = word_set("search stop word")
    return [w[:6] for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in stop]


def readings(articles: Iterable[Article], r: Random, words: int) -> Iterator[Reading]:
    """Yield all chunks of at most `words` words with their questions, and near misses."""
    pieces: list[tuple[str, str]] = []  # title of the article, text
    found: list[list[Turn]] = []  # of every piece
    numbers: list[int] = []  # of the piece's article
    for number, (title, paragraphs) in enumerate(articles):
        for text, questions in paragraphs:
            cut = [text[a:b] for a, b in chunk(text, words)]
            own: list[list[Turn]] = [[] for _ in cut]
            for turn in questions:
                owner = _owner(cut, *turn)
                if owner is not None:
                    own[owner].append(turn)
            pieces += [(title, piece) for piece in cut]
            found += own
            numbers += [number] * len(cut)
    misses: list[list[str]] = [[] for _ in pieces]
    near = _Nearest([text for _, text in pieces])
    for i, (question, answer) in ((i, turn) for i, own in enumerate(found) for turn in own):
        low = answer.lower()
        candidates = [
            j for j in near.of(question, 12) if j != i and low not in pieces[j][1].lower()
        ]
        for same in (True, False):
            for j in [j for j in candidates if (numbers[j] == numbers[i]) == same][:2]:
                misses[j].append(question)
    order = list(range(len(pieces)))
    r.shuffle(order)
    for i in order:
        known, missing = found[i], misses[i]
        r.shuffle(known)
        r.shuffle(missing)
        few = r.choice([0, 1, 1, 1, 2]) if known else r.choice([1, 2])
        turns = known[:_POSITIVES] + [(q, UNKNOWN) for q in missing[:few]]
        if len(turns) < 2 or (not known and r.random() < _UNKNOWN_ONLY_LEFT_OUT):
            continue
        r.shuffle(turns)
        yield Reading(_titled(r, *pieces[i]), [[t] for t in turns])


def _titled(r: Random, title: str, text: str) -> str:
    return text if not title or text.startswith(title) or r.random() < 0.4 else f"{title}\n{text}"


def _owner(cut: list[str], question: str, answer: str) -> int | None:
    """The chunk that answers: that with the answer and most of the question's words."""
    having = [i for i, text in enumerate(cut) if answer in text]
    if not having:
        return None
    words = set(_content(question))
    scored = sorted(((len(words & set(_content(cut[i]))), i) for i in having), reverse=True)
    if len(scored) > 1 and scored[0][0] == scored[1][0]:
        return None
    return scored[0][1]


class _Nearest:
    """Texts that share the rarest words with a question."""

    def __init__(self, texts: list[str]) -> None:
        self._where: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            for word in set(_content(text)):
                self._where.setdefault(word, []).append(i)
        self._weight = {w: math.log(len(texts) / len(at)) for w, at in self._where.items()}
        self._lengths = [math.sqrt(len(text.split()) + 10) for text in texts]

    def of(self, question: str, n: int) -> list[int]:
        """The `n` texts that fit best, the best first."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in sorted(set(_content(question))):
            for i in self._where.get(word, []):
                scores[i] += self._weight[word] / self._lengths[i]
        return sorted(scores, key=lambda i: (-scores[i], i))[:n]
