"""The texts of a corpus directory, and those of its files that are made from git clones.

A directory holds `*.txt` (one paragraph to a line, an empty line between articles), `squad.json`
(articles with questions) and, optional, `nq_questions.txt` (questions without a document).
"""

import json
import re
import subprocess
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from dragonrt.errors import TrainingError

from .clones import clean, read

_HELD_OUT_ARTICLE = 50  # every 50th article of a text is held out
_HELD_OUT_READINGS = 8  # the last articles with questions are held out
_LARGEST = 2_000_000  # characters of a text that count for its weight

Article = list[str]


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph with real questions; an empty answer means that it does not answer them."""

    paragraph: str
    questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What the requests of a draft's samples are made from, without what is held out."""

    texts: tuple[list[Article], ...]
    weights: tuple[float, ...]  # by which a text is drawn
    readings: tuple[tuple[Passage, ...], ...]  # by article
    stray_questions: tuple[str, ...]

    @classmethod
    def read(cls, directory: Path) -> "Corpus":
        """Read a corpus directory. Raises TrainingError if it holds no text."""
        paths = [p for p in sorted(directory.glob("*.txt")) if p.name != "nq_questions.txt"]
        if not paths:
            raise TrainingError(f"{directory} holds no *.txt: `corpus` writes a directory of texts")
        stray = directory / "nq_questions.txt"
        texts = [kept for path in paths if (kept := _articles(path))]
        return cls(
            texts=tuple(texts),
            weights=tuple(min(_LARGEST, sum(map(len, chain(*text)))) for text in texts),
            readings=_readings(directory / "squad.json")[:-_HELD_OUT_READINGS],
            stray_questions=tuple(stray.read_text().splitlines()) if stray.exists() else (),
        )


def _articles(path: Path) -> list[Article]:
    """Return the articles of a text that are not held out."""
    articles = [text.split("\n") for text in path.read_text().rstrip().split("\n\n")]
    if path.name == "squad-passages.txt":
        return articles[:-_HELD_OUT_READINGS]
    n = _HELD_OUT_ARTICLE
    return [article for i, article in enumerate(articles) if i % n != n - 1]


def _readings(path: Path) -> tuple[tuple[Passage, ...], ...]:
    loaded: list[Any] = json.loads(path.read_text())
    articles = (
        tuple(
            Passage(p["context"], tuple((q, a) for q, a in p["qas"]))
            for p in article["paragraphs"]
            if p["qas"]
        )
        for article in loaded
    )
    return tuple(article for article in articles if article)


def _asked(clones: Path) -> dict[str, str]:
    """Return the files of articles with questions and one answer each, and of their text alone.

    Articles that WikiText-2 evaluates on are left out.
    """
    articles: dict[str, dict[str, dict[str, str]]] = {}
    for clone, path in (
        ("deepmind+xquad", "xquad.en.json"),
        ("chrischute+squad", "data/dev-v2.0.json"),
    ):
        for article in json.loads(read(clones / clone, [path])[0])["data"]:
            for paragraph in article["paragraphs"]:
                text = clean(paragraph["context"])
                asked = articles.setdefault(article.get("title") or "", {}).setdefault(text, {})
                for question in paragraph["qas"]:
                    answers = [clean(answer["text"]) for answer in question.get("answers", [])]
                    if answers or question.get("is_impossible"):
                        asked[clean(question["question"])] = answers[0] if answers else ""
    wikitext = [f"word_language_model/data/wikitext-2/{part}.txt" for part in ("valid", "test")]
    evaluated = b"".join(read(clones / "pytorch+examples", wikitext)).decode()
    titles = re.findall(r"^ = ([^=\n]+) = *$", evaluated, flags=re.MULTILINE)
    barred = {title.strip().lower() for title in titles}
    kept = {t: texts for t, texts in articles.items() if t.replace("_", " ").lower() not in barred}
    found = [
        {
            "title": title,
            "paragraphs": [
                {"context": text, "qas": [list(pair) for pair in asked.items()]}
                for text, asked in texts.items()
            ],
        }
        for title, texts in kept.items()
    ]
    return {
        "squad.json": json.dumps(found, ensure_ascii=False),
        "squad-passages.txt": "\n\n".join(map("\n".join, kept.values())) + "\n",
    }


def _searched(clones: Path) -> dict[str, str]:
    """Return the file of questions that people typed into a search box."""
    names = ("dev", "efficientqa.dev.1.1", "efficientqa.test.1.1")
    paths = [f"nq_open/NQ-open.{name}.jsonl" for name in names]
    found = set()
    for content in read(clones / "google-research-datasets+natural-questions", paths):
        for line in content.decode().splitlines():
            question = clean(json.loads(line)["question"])
            found.add(f"{question[:1].upper()}{question[1:]}?")
    return {"nq_questions.txt": "\n".join(sorted(found)) + "\n"}


def corpus(clones: Path, out: Path) -> None:
    """Write what git clones give of a corpus directory; other `*.txt` are the user's.

    Args:
        clones: a directory of clones named `owner+repository`: deepmind/xquad, chrischute/squad,
            pytorch/examples and google-research-datasets/natural-questions.
        out: the directory.
    """
    out.mkdir(parents=True, exist_ok=True)
    for make in (_asked, _searched):
        try:
            made = make(clones)
        except subprocess.CalledProcessError as error:
            clone = Path(error.cmd[2]).name.replace("+", "/")
            raise TrainingError(f"there is no clone of {clone} in {clones}: make one") from None
        for name, text in made.items():
            (out / name).write_text(text, encoding="utf-8")
