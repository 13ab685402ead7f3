"""Openly licensed questions about articles: the corpus's, and sets that are read from clones."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .adapter_articles import Article
from .cleaning import files, read
from .sample import Turn

_LONGEST_ANSWER = 14  # words


def squad(path: Path) -> list[Article]:
    """Return the articles of a corpus but for the last two, which are held out."""
    return [
        (
            a.get("title", "").replace("_", " "),
            [
                (p["context"], [(q, s.rstrip(".,")) for q, s in p["qas"] if s])
                for p in a["paragraphs"]
            ],
        )
        for a in json.loads(path.read_text(encoding="utf-8"))[:-2]
    ]


def fetched(clones: Path, without: Path | None) -> list[Article]:
    """Return the articles of every set whose clone is there.

    None has a title or eight words in a row of the evaluation file `without`.
    """
    kept_away = json.loads(without.read_text(encoding="utf-8")) if without else []
    titles = {a["title"].replace("_", " ") for a in kept_away}
    barred = {gram for a in kept_away for p in a["paragraphs"] for gram in _grams(p["text"])}
    found: list[Article] = []
    for name, path, loader in (
        ("google-research-datasets+QED", "qed-dev.jsonlines", _qed),
        ("haonan-li+MultiSpanQA", "data/MultiSpanQA_data/valid.json", _spans),
    ):
        if (clones / name).exists():
            found += loader(read(clones / name, [path])[0].decode("utf-8"))
    return [
        (title, paragraphs)
        for title, paragraphs in found
        if title not in titles and not any(_grams(text) & barred for text, _ in paragraphs)
    ]


def fairytales(clones: Path) -> list[Article]:
    """Return stories with questions, why and how among them (FairytaleQA, Apache-2.0)."""
    clone = clones / "uci-soe+FairytaleQAData"
    if not clone.exists():
        return []
    stories = [f for f in files(clone) if "by-train-split/section-stories/train/" in f]
    asked = [
        f.replace("section-stories", "questions").replace("-story.csv", "-questions.csv")
        for f in stories
    ]
    found: list[Article] = []
    texts = zip(read(clone, stories), read(clone, asked), strict=True)
    for path, (story, questions) in zip(stories, texts, strict=True):
        title = Path(path).name.removesuffix("-story.csv").replace("-", " ").capitalize()
        sections = {row["section"]: (row["text"].strip(), list[Turn]()) for row in _rows(story)}
        for row in _rows(questions):
            section = sections.get(row["cor_section"])
            answer = row["answer1"].strip().rstrip(".")
            if not section or row["ex-or-im1"] != "explicit" or not answer:
                continue
            at = section[0].lower().find(answer.lower())
            if at >= 0 and len(answer.split()) <= 2 * _LONGEST_ANSWER:
                said = section[0][at : at + len(answer)]
                section[1].append((row["question"].strip(), said))
        found.append((title, list(sections.values())))
    return found


def _rows(text: bytes) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(text.decode("utf-8", "replace")))


def _grams(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + 8]) for i in range(len(words) - 7)}


def _plain(text: str) -> str:
    """Write a text whose marks stood apart as tokens as people write it."""
    text = text.replace("``", '"').replace("''", '"').replace("-- ", "– ")
    text = re.sub(r'" ([^"]*?) "', r'"\1"', text)
    text = re.sub(r" ([,.;:?!)%\]])", r"\1", text)
    text = re.sub(r"([(\[$£#]) ", r"\1", text)
    text = re.sub(r" (n't|'s|'re|'ve|'ll|'d|'m|')(?= |$)", r"\1", text)
    return re.sub(r"(\w) - (\w)", r"\1-\2", text).strip()


def _question(text: str) -> str:
    """A search query as a question; real people write them both ways."""
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else "?")


def _qed(text: str) -> Iterator[Article]:
    """Natural Questions with their paragraphs (QED, CC BY-SA 3.0)."""
    for line in text.splitlines():
        row: dict[str, Any] = json.loads(line)
        answers = [a["string"] for group in row["original_nq_answers"] for a in group]
        if not answers:
            continue
        answer = _plain(min(answers, key=len))
        paragraph = _plain(row["paragraph_text"])
        if answer in paragraph and len(answer.split()) <= _LONGEST_ANSWER:
            yield row["title_text"], [(paragraph, [(_question(row["question_text"]), answer)])]


def _spans(text: str) -> Iterator[Article]:
    """Natural Questions with several spans (MultiSpanQA, CC BY-SA 3.0)."""
    for row in json.loads(text)["data"]:
        spans: list[list[str]] = []
        for word, label in zip(row["context"], row["label"], strict=True):
            if label == "B":
                spans.append([word])
            elif label == "I" and spans:
                spans[-1].append(word)
        answer = ", ".join(_plain(" ".join(s)) for s in spans)
        question = _question(_plain(" ".join(row["question"])))
        if len(spans) <= 3 and len(answer.split()) <= _LONGEST_ANSWER:
            yield "", [(_plain(" ".join(row["context"])), [(question, answer)])]
