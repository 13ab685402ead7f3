"""Build a corpus directory from clones of public repositories that the user has.

    python -m scripts.train.models.build_corpus CLONES CORPUS

CLONES holds clones named `owner+repository`; a missing one is named and left out. Wanted are
openstax/osbooks-* (BOOKS below), any standardebooks/*, factbook/factbook.json, nltk/nltk_data,
deepmind/xquad, chrischute/squad, google-research-datasets/natural-questions, and, so that nothing
of WikiText-2 is trained on, pytorch/examples. Their licences are in the README of this directory.
"""

import argparse
import io
import json
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .cleaning import clean, is_article, is_prose, without_tags
from .corpus import Article
from .factbook import countries
from .snapshots import Snapshots

BOOKS = (
    "introduction-anthropology",
    "introduction-business",
    "life-liberty-and-pursuit-happiness",
    "principles-economics-bundle",
    "introduction-intellectual-property",
    "college-success",
)
_LARGEST_BOOK = 4_000_000  # characters: one long diary must not be a fifth of the corpus
_TEACHING = re.compile(
    r"<(section|note|list)[^>]*class=\"[^\"]*(learning|objectives|summary|key|review|critical"
    r"|exercise|problem|reference|glossary|further|solutions|practice|questions)[^\"]*\".*?</\1>",
    re.DOTALL,
)
_APPARATUS = re.compile(
    r"<(exercise|problem|solution|table|figure|equation|glossary|metadata)[\s>].*?</\1>", re.DOTALL
)
_FRONT_AND_BACK = re.compile(
    r"(titlepage|imprint|colophon|uncopyright|endnotes|halftitle|dedication|epigraph|loi|toc"
    r"|preface-by|introduction-by)"
)
_VERSE = re.compile(r"<(blockquote)[^>]*verse.*?</\1>", re.DOTALL)
_READINGS = (("deepmind+xquad", "xquad.en.json"), ("chrischute+squad", "data/dev-v2.0.json"))
_ANNOUNCEMENT = re.compile(r"(By the end|After reading|In this (section|chapter))")


def textbook(snapshots: Snapshots, clone: str) -> list[Article]:
    """The modules of an OpenStax book, without exercises, summaries and tables."""
    paths = [path for path in snapshots.files(clone) if path.endswith("index.cnxml")]
    articles, seen = [], set[str]()
    for content in snapshots.read(clone, paths):
        markup = _APPARATUS.sub(" ", _TEACHING.sub(" ", content.decode("utf8", "ignore")))
        found = re.findall(r"<para[^>]*>(.*?)</para>", markup, flags=re.DOTALL)
        paragraphs = [
            p
            for p in dict.fromkeys(map(without_tags, found))
            if p not in seen and is_prose(p, 60) and not _ANNOUNCEMENT.match(p)
        ]
        seen.update(paragraphs)
        if is_article(paragraphs):
            articles.append(paragraphs)
    return articles


def ebook(snapshots: Snapshots, clone: str) -> list[Article]:
    """The chapters of a Standard Ebooks edition."""

    def natural(path: str) -> list[tuple[bool, int, str]]:
        parts = re.split(r"(\d+)", path)
        return [(p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts]

    paths = [
        path
        for path in snapshots.files(clone)
        if path.startswith("src/epub/text/")
        and path.endswith(".xhtml")
        and not _FRONT_AND_BACK.search(path)
    ]
    articles: list[Article] = []
    size = 0
    for content in snapshots.read(clone, sorted(paths, key=natural)):
        markup = _VERSE.sub(" ", content.decode("utf8", "ignore"))
        found = re.findall(r"<p[^>]*>(.*?)</p>", markup, flags=re.DOTALL)
        paragraphs = [p for p in map(without_tags, found) if is_prose(p, 2)]
        if is_article(paragraphs):
            articles.append(paragraphs)
            size += sum(map(len, paragraphs))
        if size > _LARGEST_BOOK:
            break
    return articles


def speeches(snapshots: Snapshots) -> list[Article]:
    """Inaugural and State of the Union addresses."""
    paths = [f"packages/corpora/{name}.zip" for name in ("inaugural", "state_union")]
    articles = []
    for content in snapshots.read("nltk+nltk_data", paths):
        archive = zipfile.ZipFile(io.BytesIO(content))
        for name in sorted(archive.namelist()):
            if name.endswith(".txt") and "README" not in name:
                found = re.split(r"\n\s*\n", archive.read(name).decode("latin1"))
                paragraphs = [p for p in map(clean, found) if is_prose(p, 60)]
                if is_article(paragraphs):
                    articles.append(paragraphs)
    return articles


def readings(snapshots: Snapshots) -> list[dict[str, Any]]:
    """Articles with questions and one answer each, in the shape that corpus.py reads."""
    articles: dict[str, dict[str, dict[str, str]]] = {}
    for clone, path in (
        ("deepmind+xquad", "xquad.en.json"),
        ("chrischute+squad", "data/dev-v2.0.json"),
    ):
        for article in json.loads(snapshots.read(clone, [path])[0])["data"]:
            for paragraph in article["paragraphs"]:
                text = clean(paragraph["context"])
                asked = articles.setdefault(article.get("title") or "", {}).setdefault(text, {})
                for question in paragraph["qas"]:
                    answers = [clean(answer["text"]) for answer in question.get("answers", [])]
                    if answers or question.get("is_impossible"):
                        asked[clean(question["question"])] = answers[0] if answers else ""
    evaluated = _evaluation_titles(snapshots)
    return [
        {
            "title": title,
            "paragraphs": [
                {"context": text, "qas": [list(pair) for pair in asked.items()]}
                for text, asked in paragraphs.items()
            ],
        }
        for title, paragraphs in articles.items()
        if title.replace("_", " ").lower() not in evaluated
    ]


def _evaluation_titles(snapshots: Snapshots) -> set[str]:
    directory = "word_language_model/data/wikitext-2/"
    parts = snapshots.read("pytorch+examples", [directory + n for n in ("valid.txt", "test.txt")])
    titles = re.findall(r"^ = ([^=\n]+) = *$", b"".join(parts).decode(), flags=re.MULTILINE)
    return {title.strip().lower() for title in titles}


def stray_questions(snapshots: Snapshots) -> list[str]:
    """Questions that people typed into a search box, without documents."""
    names = ("dev", "efficientqa.dev.1.1", "efficientqa.test.1.1")
    paths = [f"nq_open/NQ-open.{name}.jsonl" for name in names]
    found = set()
    for content in snapshots.read("google-research-datasets+natural-questions", paths):
        for line in content.decode().splitlines():
            question = clean(json.loads(line)["question"])
            found.add(f"{question[:1].upper()}{question[1:]}?")
    return sorted(found)


def build(clones: Path, corpus: Path) -> list[str]:
    """Write what the clones give into the corpus directory; return the sources that are missing."""
    snapshots = Snapshots(clones)
    corpus.mkdir(parents=True, exist_ok=True)

    def text(name: str, articles: list[Article]) -> None:
        joined = "\n\n".join("\n".join(article) for article in articles)
        (corpus / f"{name}.txt").write_text(joined + "\n")

    def with_questions() -> None:
        found = readings(snapshots)
        (corpus / "squad.json").write_text(json.dumps(found, ensure_ascii=False))
        text("squad-passages", [[p["context"] for p in a["paragraphs"]] for a in found])

    def with_fields() -> None:
        fields, articles = countries(snapshots)
        (corpus / "factbook_facts.json").write_text(json.dumps(fields, ensure_ascii=False))
        text("factbook", articles)

    def typed() -> None:
        (corpus / "nq_questions.txt").write_text("\n".join(stray_questions(snapshots)) + "\n")

    jobs: dict[str, Callable[[], None]] = {
        f"openstax/osbooks-{book}": lambda book=book: text(  # type: ignore[misc]
            f"openstax-{book}", textbook(snapshots, f"openstax+osbooks-{book}")
        )
        for book in BOOKS
    }
    for clone in snapshots.names("standardebooks"):
        title = clone.split("+")[1]
        jobs[clone] = lambda clone=clone, title=title: text(  # type: ignore[misc]
            f"se-{title}", ebook(snapshots, clone)
        )
    jobs["nltk/nltk_data"] = lambda: text("us-presidents-speeches", speeches(snapshots))
    jobs["factbook/factbook.json"] = with_fields
    jobs["deepmind/xquad, chrischute/squad, pytorch/examples"] = with_questions
    jobs["google-research-datasets/natural-questions"] = typed
    missing = []
    for source, job in jobs.items():
        try:
            job()
        except subprocess.CalledProcessError:
            missing.append(source)
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the training corpus from git clones.")
    parser.add_argument("clones", type=Path)
    parser.add_argument("corpus", type=Path)
    args = parser.parse_args()
    for source in build(args.clones, args.corpus):
        print(f"left out, not in {args.clones}: {source}")


if __name__ == "__main__":
    main()
