"""Articles with questions in chunks as the product cuts them, and near misses of each chunk."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from retrieval.chunking import chunk

from .sample import UNKNOWN, Reading, Turn

_UNKNOWN_ONLY_LEFT_OUT = 0.8  # of the chunks that answer nothing

_STOP = frozenset(
    ["the", "a", "an", "of", "in", "on", "at", "to", "and", "or", "is", "was", "were", "are", "did",
     "do", "does", "what", "who", "when", "where", "which", "how", "why", "many", "much", "for",
     "with", "by", "from", "that", "this", "it", "its", "as", "be", "has", "had", "have", "s",
     "name", "called"]
)  # fmt: skip


def _content(text: str) -> list[str]:
    """Stems of the words that carry meaning."""
    return [w[:6] for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in _STOP]


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of an article."""

    article: int
    title: str
    text: str


class Articles:
    """Articles with questions, cut into chunks as the product cuts them."""

    def __init__(self, articles: list[tuple[str, list[tuple[str, list[Turn]]]]]) -> None:
        self._articles = articles

    def readings(self, r: Random, words: int, positives: int = 7) -> Iterator[Reading]:
        """All chunks of at most `words` words with their questions, and near misses."""
        pieces: list[Piece] = []
        found: list[list[Turn]] = []  # of every piece
        for number, (title, paragraphs) in enumerate(self._articles):
            for text, questions in paragraphs:
                cut = [text[a:b] for a, b in chunk(text, words)]
                first = len(pieces)
                pieces += [Piece(number, title, t) for t in cut]
                found += [[] for _ in cut]
                for question, answer in questions:
                    owner = _owner(cut, question, answer)
                    if owner is not None:
                        found[first + owner].append((question, answer))
        asked = [(i, q, a) for i, own in enumerate(found) for q, a in own]
        misses: list[list[str]] = [[] for _ in pieces]
        near = _Nearest([p.text for p in pieces])
        for i, question, answer in asked:
            here = pieces[i]
            low = answer.lower()
            candidates = [
                j for j in near.of(question, 12) if j != i and low not in pieces[j].text.lower()
            ]
            same = [j for j in candidates if pieces[j].article == here.article][:2]
            other = [j for j in candidates if pieces[j].article != here.article][:2]
            for j in same + other:
                misses[j].append(question)
        order = list(range(len(pieces)))
        r.shuffle(order)
        for i in order:
            known = found[i]
            r.shuffle(known)
            missing = misses[i]
            r.shuffle(missing)
            known = known[:positives]
            few = r.choice([0, 1, 1, 1, 2]) if known else r.choice([1, 2])
            turns = known + [(q, UNKNOWN) for q in missing[:few]]
            if len(turns) < 2 or (not known and r.random() < _UNKNOWN_ONLY_LEFT_OUT):
                continue
            r.shuffle(turns)
            yield Reading(_titled(r, pieces[i]), [[t] for t in turns])


def _titled(r: Random, piece: Piece) -> str:
    if not piece.title or piece.text.startswith(piece.title) or r.random() < 0.4:
        return piece.text
    return f"{piece.title}\n{piece.text}"


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


def squad(path: Path, held_out: bool) -> Articles:
    """The corpus's articles; the last two are held out."""
    articles = json.loads(path.read_text(encoding="utf-8"))
    part = articles[-2:] if held_out else articles[:-2]
    return Articles(
        [
            (
                a.get("title", "").replace("_", " "),
                [
                    (p["context"], [(q, s.rstrip(".,")) for q, s in p["qas"] if s])
                    for p in a["paragraphs"]
                ],
            )
            for a in part
        ]
    )
