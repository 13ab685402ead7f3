"""The texts of a corpus directory, as the generators draw from them.

A directory holds `*.txt` (one paragraph to a line, an empty line between articles) and, each
optional, `factbook_facts.json` (fields of countries), `squad.json` (articles with questions) and
`nq_questions.txt` (questions without a document). `build_corpus.py` writes one.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonrt.errors import TrainingError

from .values import pattern

_HELD_OUT_ARTICLE = 50  # every 50th article of a text is held out
_HELD_OUT_READINGS = 8  # the last articles with questions are held out
_LARGEST = 2_000_000  # characters of a text that count for its weight

Article = list[str]
Country = dict[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph with real questions; an empty answer means that it does not answer them."""

    paragraph: str
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that samples are made from; each part but `texts` may be empty."""

    texts: tuple[list[Article], ...]
    weights: tuple[float, ...]  # by which a text is drawn
    countries: tuple[Country, ...]
    readings: dict[bool, tuple[tuple[Passage, ...], ...]]  # by "is held out", then by article
    stray_questions: tuple[str, ...]

    @classmethod
    def read(cls, directory: Path) -> "Corpus":
        """Read a corpus directory. Raises TrainingError if it holds no text."""
        paths = [p for p in sorted(directory.glob("*.txt")) if p.name != "nq_questions.txt"]
        if not paths:
            raise TrainingError(f"{directory} holds no *.txt: `corpus` writes a directory of texts")
        stray = directory / "nq_questions.txt"
        articles = _readings(directory / "squad.json")
        last = _HELD_OUT_READINGS
        texts = {path.name: kept for path in paths if (kept := _articles(path))}
        return cls(
            texts=tuple(texts.values()),
            weights=tuple(_weight(name, kept) for name, kept in texts.items()),
            countries=tuple(_json_list(directory / "factbook_facts.json")),
            readings={False: articles[:-last], True: articles[-last:]},
            stray_questions=tuple(stray.read_text().splitlines()) if stray.exists() else (),
        )


def _articles(path: Path) -> list[Article]:
    """Return the articles of a text that are not held out."""
    articles = [text.split("\n") for text in path.read_text().rstrip().split("\n\n")]
    if path.name == "squad-passages.txt":
        return articles[:-_HELD_OUT_READINGS]
    n = _HELD_OUT_ARTICLE
    return [article for i, article in enumerate(articles) if i % n != n - 1]


def _weight(name: str, articles: list[Article]) -> float:
    size = min(_LARGEST, sum(len(p) for article in articles for p in article))
    # Novels are many and their language is far from that of notes and articles.
    return size * (0.5 if name.startswith("se-") else 1.6)


def _readings(path: Path) -> tuple[tuple[Passage, ...], ...]:
    articles = (
        tuple(
            Passage(p["context"], tuple((q, a) for q, a in p["qas"]))
            for p in article["paragraphs"]
            if p["qas"]
        )
        for article in _json_list(path)
    )
    return tuple(article for article in articles if article)


def _json_list(path: Path) -> list[Any]:
    loaded: list[Any] = json.loads(path.read_text()) if path.exists() else []
    return loaded


def sentences(text: str) -> list[str]:
    """Split a text into its sentences."""
    return [s for s in pattern("sentence break").split(text) if s]
