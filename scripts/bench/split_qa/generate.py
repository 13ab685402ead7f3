#!/usr/bin/env python3
"""Make Split-QA: documents on two sides, and questions whose answers stand on one, both or neither.

    python generate.py [ARTICLES.json] --out SET.json

ARTICLES.json has SQuAD's format, of which the article worlds are made; without it the set has the
worlds that were written for this (the .toml files beside). It needs numpy alone, for its draws.
docs/split-qa.md has the format of the set.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

WRITTEN = {"two part": "two_part.toml", "bridge": "bridge.toml", "yes or no": "yes_no.toml"}
"""The forms of questions over documents.toml."""
BOTH, NOWHERE = 1 / 6, 1 / 3
"""Shares of paragraphs that are given to both sides, and removed, in worlds of their own."""

_LOWERED = re.compile(
    r"(What|Which|Who|Whom|Whose|When|Where|Why|How|In|On|At|By|For|From|To|Of|With|During|After|"
    r"Before|Is|Are|Was|Were|Did|Do|Does|Has|Have|Can|The)\b"
)
_JOINTS = ("{a}, and {b}?", "{a}? {B}?", "{a} and {b}?", "{a}? And {b}?")

World = dict[str, Any]
"""name, device and cloud (texts by name of file), questions."""


@dataclass
class Paragraph:
    """A paragraph of an article, and its questions with their answers."""

    title: str
    name: str
    text: str
    home: str
    asked: list[tuple[str, list[str]]] = field(default_factory=list)


def split_qa(articles: Any, seed: int) -> list[World]:
    """Return the worlds of a set: four of articles, if there are any, and the two written ones.

    `articles` are those of a loaded file of SQuAD's format. Raises KeyError, TypeError or
    AttributeError for another one.
    """
    return [*(article_worlds(articles, seed) if articles else ()), *written_worlds()]


def article_worlds(articles: Any, seed: int) -> Iterator[World]:
    """Yield the worlds of articles: every paragraph at home, some at both, some nowhere, halves.

    Half of the articles, by a keyed draw, are the device's. Only what is asked of moved paragraphs
    is asked in the other worlds.
    """
    random = np.random.default_rng(seed)
    paragraphs = list(_paragraphs(articles, random))
    yield _world("home", paragraphs, {}, paragraphs)
    order = [paragraphs[i] for i in random.permutation(len(paragraphs))]
    ends = round(BOTH * len(order)), round((BOTH + NOWHERE) * len(order))
    for name, moved in (("both", order[: ends[0]]), ("nowhere", order[ends[0] : ends[1]])):
        yield _world(name, paragraphs, {each.name: name for each in moved}, moved)
    yield _halved(paragraphs, random)


def written_worlds() -> Iterator[World]:
    """Yield the worlds of documents that were written for this."""
    pairs = _loaded("documents.toml")
    names = {"device": "my {}.md", "cloud": "{}.md"}
    sides = {
        side: {name.format(of): pairs[of][side] for of in pairs} for side, name in names.items()
    }
    yield {"name": "written", **sides} | {
        "questions": [
            _question(f"written-{form.replace(' ', '-')}-{number}", form, each)
            | {
                "source": " + ".join(
                    name.format(each["of"])
                    for side, name in names.items()
                    if each.get("place", side) == side
                )
            }
            for form, name in WRITTEN.items()
            for number, each in enumerate(_loaded(name)["question"])
        ]
    }
    forms = _loaded("forms.toml")
    yield {"name": "forms", "device": forms["device"], "cloud": forms["cloud"]} | {
        "questions": [
            _question(f"forms-{number}", each.get("kind", "question"), each)
            for number, each in enumerate(forms["question"])
        ]
    }


def _loaded(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _question(id_: str, form: str, each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": id_,
        "question": each["ask"],
        "answers": each["answers"],
        "wrong": each.get("wrong", []),
        "place": each.get("place", "needs both"),
        "form": form,
        "group": each["of"],
        "source": each["of"],
    }


def _paragraphs(articles: Any, random: np.random.Generator) -> Iterator[Paragraph]:
    loaded = articles["data"] if isinstance(articles, dict) else articles
    device = set(random.permutation(len(loaded))[: len(loaded) // 2])
    for number, article in enumerate(loaded):
        home = "device" if number in device else "cloud"
        for part, each in enumerate(article["paragraphs"]):
            text = each["context"] if "context" in each else each["text"]
            made = Paragraph(article["title"], f"{number}-{part}.txt", text, home)
            for asked in each["qas"] if "qas" in each else each["questions"]:
                answers = [a if isinstance(a, str) else a["text"] for a in asked["answers"]]
                made.asked.append((asked["question"], list(dict.fromkeys(answers))))
            yield made


def _world(
    name: str, paragraphs: Sequence[Paragraph], places: Mapping[str, str], asked: list[Paragraph]
) -> World:
    """Return a world of paragraphs at home, or where `places` has them; what is `asked` in it."""
    place = {each.name: places.get(each.name, each.home) for each in paragraphs}
    sides = {
        side: {each.name: each.text for each in paragraphs if place[each.name] in (side, "both")}
        for side in ("device", "cloud")
    }
    questions = [
        {
            "id": f"{name}-{each.name.removesuffix('.txt')}-{number}",
            "question": question,
            "answers": [answers] if answers else [],
            "place": place[each.name] if answers else "nowhere",
            "form": "article",
            "group": each.title,
            "source": each.name,
        }
        for each in asked
        for number, (question, answers) in enumerate(each.asked)
    ]
    return {"name": name, **sides, "questions": questions}


def _halved(paragraphs: Sequence[Paragraph], random: np.random.Generator) -> World:
    """Return a world whose paragraphs are cut in two: a half, and one of two questions, a side."""
    world: World = {"name": "halves", "device": {}, "cloud": {}, "questions": []}
    for each in paragraphs:
        halves, pairs = _cut(each)
        if not pairs:
            world[each.home][each.name] = each.text
            continue
        first = random.integers(2)
        for half, text in enumerate(halves):
            world[("device", "cloud")[half ^ first]][each.name] = text
        for number, ((a, known), (b, other)) in enumerate(pairs):
            world["questions"].append(
                {
                    "id": f"halves-{each.name.removesuffix('.txt')}-{number}",
                    "question": _joined(a, b, _JOINTS[random.integers(len(_JOINTS))]),
                    "answers": [known, other],
                    "place": "needs both",
                    "form": "two part",
                    "group": each.title,
                    "source": each.name,
                }
            )
    return world


def _cut(each: Paragraph) -> tuple[tuple[str, str], list[Any]]:
    """Return the halves of a paragraph, and pairs of questions that one half alone answers each."""
    ends = [found.end() for found in re.finditer(r"[.!?][\"”')]* +(?=[A-Z\"“'(0-9])", each.text)]
    if not ends:
        return (each.text, ""), []
    middle = min(ends, key=lambda end: abs(end - len(each.text) // 2))
    halves = each.text[:middle].rstrip(), each.text[middle:]
    of: tuple[list[Any], list[Any]] = ([], [])
    for question, answers in each.asked:
        has = [any(answer in half for answer in answers) for half in halves]
        if has[0] != has[1]:
            of[has[1]].append((question, answers))
    return halves, list(zip(*of, strict=False))


def _joined(a: str, b: str, joint: str) -> str:
    a, b = a.strip().rstrip("?").rstrip(), b.strip().rstrip("?").rstrip()
    if not _LOWERED.match(b):  # a name may come first
        joint = "{a}? {B}?"
    return joint.format(a=a, b=b[:1].lower() + b[1:], B=b)


def main() -> None:
    """Write a set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("articles", nargs="?", type=Path, help="articles with questions (SQuAD's)")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    parser.add_argument("--seed", type=int, default=2026, help="draws sides and paragraphs")
    given = parser.parse_args()
    try:
        articles = json.loads(given.articles.read_text("utf-8")) if given.articles else None
        worlds = split_qa(articles, given.seed)
        made = {"set": "split-qa", "seed": given.seed, "worlds": worlds}
        given.out.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", "utf-8")
    except OSError as error:
        sys.exit(f"cannot read or write {error.filename}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{given.articles} has not SQuAD's format: {error!r}")
    for world in worlds:
        print(f"{world['name']:10}{len(world['questions']):5} questions")


if __name__ == "__main__":
    main()
