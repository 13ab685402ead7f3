"""Articles with questions in chunks as the product cuts them, and near misses of each chunk."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from retrieval.chunking import chunk
from scripts.train.models.sample import UNKNOWN, Turn
from scripts.train.models.values import word_set

Article = tuple[str, list[tuple[str, list[Turn]]]]  # title, paragraphs with their questions
_QUESTIONS = 5  # at most that are asked of a chunk alone
_REFUSALS = (1, 2, 2, 2)  # questions of other chunks


def _content(text: str) -> list[str]:
    """Return stems of the words that carry meaning."""
    stop = word_set("search stop word")
    return [w[:6] for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in stop]


class Pieces:
    """Articles cut as the product cuts them, the questions of each piece, and near misses."""

    def __init__(self, articles: Iterable[Article], r: Random, words: int) -> None:
        """Cut articles into chunks of at most `words` words."""
        self._texts: list[str] = []
        self._known: list[list[Turn]] = []  # of every piece
        self._titles: list[str] = []
        for title, paragraphs in articles:
            for text, questions in paragraphs:
                cut = [text[a:b] for a, b in chunk(text, words)]
                own: list[list[Turn]] = [[] for _ in cut]
                for turn in questions:
                    if (owner := _owner(cut, *turn)) is not None:
                        own[owner].append(turn)
                self._texts += [_titled(r, title, piece) for piece in cut]
                self._known += own
                self._titles += [title] * len(cut)
        self._asked = [i for i, known in enumerate(self._known) if known]
        self._words = TfidfVectorizer(analyzer=_content)
        self._vectors = self._words.fit_transform(self._texts)

    def any(self, r: Random) -> str:
        return r.choice(self._texts)

    def titled(self, r: Random) -> tuple[str, str, list[Turn]]:
        """Return the title of an article, one of its pieces, and what is asked of that."""
        i = r.choice([i for i in self._asked if self._titles[i]])
        return self._titles[i], self._texts[i], self._known[i]

    def several(
        self, r: Random, count: int
    ) -> tuple[list[str], list[tuple[list[Turn], tuple[int, ...]]]]:
        """Return pieces that are near each other and what is asked of them, refusals among it.

        Each question comes with the numbers of the pieces that it needs.
        """
        chosen = [r.choice(self._asked)]
        question, answer = r.choice(self._known[chosen[0]])
        likeness = (self._vectors @ self._words.transform([question]).T).toarray()[:, 0]
        nearest = np.argsort(-likeness, kind="stable")[:8].tolist()
        near = [i for i in nearest if likeness[i] > 0 and i not in chosen]
        chosen += [i for i in r.sample(near, len(near)) if self._lacks(i, answer)][: count - 1]
        asked: list[tuple[list[Turn], tuple[int, ...]]] = []
        for number, i in enumerate(chosen):
            here = self._known[i]
            most = _QUESTIONS if count == 1 else 3 + (number == 0)
            for turn in r.sample(here, min(len(here), most)):
                if all(self._lacks(j, turn[1]) for j in chosen if j != i):
                    asked.append(([turn], (number,)))
        for _ in range(r.choice(_REFUSALS)):
            i = r.choice(near) if near and r.random() < 0.8 else r.choice(self._asked)
            if i not in chosen and self._known[i]:
                question, answer = r.choice(self._known[i])
                known = any(turns[0][0] == question for turns, _ in asked)
                if not known and all(self._lacks(j, answer) for j in chosen):
                    asked.append(([(question, UNKNOWN)], ()))
        return [self._texts[i] for i in chosen], asked

    def _lacks(self, number: int, answer: str) -> bool:
        return answer.lower() not in self._texts[number].lower()


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


def articles(files: Iterable[Path], without: Path | None) -> list[Article]:
    """Read articles with questions in the form of SQuAD's files.

    None has a title or eight words in a row of the evaluation file `without`.
    """
    kept_away = _loaded(without) if without else []
    titles = {title for title, _ in kept_away}
    barred = {
        gram for _, paragraphs in kept_away for text, _ in paragraphs for gram in _grams(text)
    }
    return [
        (title, paragraphs)
        for file in files
        for title, paragraphs in _loaded(file)
        if title not in titles and not any(_grams(text) & barred for text, _ in paragraphs)
    ]


def _loaded(file: Path) -> list[Article]:
    def asked(paragraph: dict[str, Any]) -> list[Turn]:
        answered = [each for each in paragraph["qas"] if each["answers"]]
        return [(each["question"], each["answers"][0]["text"].rstrip(".,")) for each in answered]

    return [
        (
            article.get("title", "").replace("_", " "),
            [(each["context"], asked(each)) for each in article["paragraphs"]],
        )
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]
    ]


def _grams(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + 8]) for i in range(len(words) - 7)}
