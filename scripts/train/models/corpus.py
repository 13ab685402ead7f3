"""The texts of a corpus directory, as the generators draw from them.

A directory holds `*.txt` (one paragraph to a line, an empty line between articles) and, each
optional, `factbook_facts.json` (fields of countries), `squad.json` (articles with questions) and
`nq_questions.txt` (questions without a document). `build_corpus.py` writes one.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HELD_OUT_ARTICLE = 50  # every 50th article of a text is held out
HELD_OUT_READINGS = 8  # the last articles with questions are held out
_LARGEST = 2_000_000  # characters of a text that count for its weight

Article = list[str]
Country = dict[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class Reading:
    """A paragraph with real questions; an empty answer means that it does not answer them."""

    paragraph: str
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Prose:
    """Texts as lists of articles, with the weight by which a text is drawn."""

    texts: tuple[list[Article], ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that samples are made from; each part but `prose` may be empty."""

    prose: dict[bool, Prose]  # by "is held out"
    countries: tuple[Country, ...]
    readings: dict[bool, tuple[tuple[Reading, ...], ...]]  # by "is held out", then by article
    stray_questions: tuple[str, ...]

    @classmethod
    def read(cls, directory: Path) -> "Corpus":
        """Read a corpus directory.

        Raises:
            FileNotFoundError: the directory holds no text.
        """
        texts = {p: _articles(p) for p in sorted(directory.glob("*.txt")) if _is_prose(p)}
        if not texts:
            raise FileNotFoundError(f"{directory} holds no *.txt; build_corpus.py writes a corpus")
        stray = directory / "nq_questions.txt"
        articles = _readings(directory / "squad.json")
        return cls(
            prose={held: _prose(texts, held) for held in (False, True)},
            countries=tuple(_json_list(directory / "factbook_facts.json")),
            readings={False: articles[:-HELD_OUT_READINGS], True: articles[-HELD_OUT_READINGS:]},
            stray_questions=tuple(stray.read_text().splitlines()) if stray.exists() else (),
        )


def _is_prose(path: Path) -> bool:
    return path.name != "nq_questions.txt"


def _articles(path: Path) -> list[Article]:
    return [text.split("\n") for text in path.read_text().rstrip().split("\n\n")]


def _prose(texts: dict[Path, list[Article]], held_out: bool) -> Prose:
    kept, weights = [], []
    for path, articles in texts.items():
        if path.name == "squad-passages.txt":
            chosen = [] if held_out else articles[:-HELD_OUT_READINGS]
        else:
            last = HELD_OUT_ARTICLE - 1
            chosen = [
                article
                for i, article in enumerate(articles)
                if (i % HELD_OUT_ARTICLE == last) == held_out
            ]
        if chosen:
            kept.append(chosen)
            size = min(_LARGEST, sum(len(p) for article in chosen for p in article))
            # Novels are many and their language is far from that of notes and articles.
            weights.append(size * (0.5 if path.name.startswith("se-") else 1.6))
    return Prose(tuple(kept), tuple(weights))


def _readings(path: Path) -> tuple[tuple[Reading, ...], ...]:
    articles = (
        tuple(
            Reading(p["context"], tuple((q, a) for q, a in p["qas"]))
            for p in article["paragraphs"]
            if p["qas"]
        )
        for article in _json_list(path)
    )
    return tuple(article for article in articles if article)


def _json_list(path: Path) -> list[Any]:
    loaded: list[Any] = json.loads(path.read_text()) if path.exists() else []
    return loaded


_AFTER_QUOTE = r"(?<=[.!?][\"'])\s+(?=[A-Z\"])"
_AFTER_STOP = r"(?<=[.!?])(?<!Mr\.)(?<!Mrs\.)(?<!Dr\.)(?<!St\.)(?<!\b[A-Z]\.)\s+(?=[A-Z\"'])"


def sentences(text: str) -> list[str]:
    return [s for s in re.split(f"{_AFTER_QUOTE}|{_AFTER_STOP}", text) if s]
