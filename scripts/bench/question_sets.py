"""Questions with known answers over two sides' documents, and where each answer stands.

A set is a JSON file. A list is taken for SQuAD-like articles:
[{"title", "paragraphs": [{"text", "questions": [{"question", "answers"}]}]}]; half of the articles,
by a keyed draw, are the device's. An object names the sides' documents, relative to the file:
{"device": ["notes"], "cloud": ["articles"], "questions": [{"question", "answers", "place"}]}.
Without a file the set is made of forms that no training saw (`unseen`).
"""

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dragonrt.errors import DragonError
from retrieval.files import read_text
from scripts.bench.unseen import Place, world

LARGEST = 2**28  # bytes of a set
PLACES: tuple[Place, ...] = get_args(Place)
BOTH, NOWHERE = 1 / 6, 1 / 3
"""Shares of paragraphs of which questions are asked again: given to both sides, and removed."""

_LEADING = re.compile(r"^(in|on|at|with|for) ")
_MARKS = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """A question, its possible answers, and where these stand.

    Attributes:
        group: what intervals are resampled by: the article.
        source: the file with the answer, where that is known.
    """

    question: str
    answers: tuple[str, ...]
    place: Place
    group: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """Both sides' documents and what is asked over them."""

    device: tuple[Path, ...]
    cloud: tuple[Path, ...]
    questions: tuple[KnownQuestion, ...]


def worlds(file: Path | None, folder: Path, seed: int) -> list[World]:
    """Read the set in `file` and write the documents that it holds below `folder`.

    Of articles there are three worlds: every paragraph at home; some at both sides; some removed.
    Only what is asked of moved paragraphs is asked in the last two. Raises DragonError for a file
    of another form.
    """
    if file is None:
        return [_made(folder, seed)]
    try:
        loaded = json.loads(read_text(file, LARGEST))
        if isinstance(loaded, list):
            return list(_articles(loaded, folder, seed))
        return [_named(loaded, file.parent)]
    except OSError as error:
        raise DragonError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DragonError(
            f"{file} is no set of questions: it needs a list of articles with paragraphs, or "
            f"device, cloud and questions ({error!r})"
        ) from None


def chosen(questions: Sequence[KnownQuestion], share: float, seed: int) -> list[KnownQuestion]:
    """Draw that share of the questions, at least one, in their order."""
    count = max(1, round(share * len(questions)))
    drawn = np.random.default_rng(seed).permutation(len(questions))[:count]
    return [questions[i] for i in sorted(drawn)]


def _articles(loaded: Sequence[Mapping[str, Any]], folder: Path, seed: int) -> Iterator[World]:
    random = np.random.default_rng(seed)
    device = set(random.permutation(len(loaded))[: len(loaded) // 2])
    texts: dict[str, str] = {}
    homes: dict[str, Place] = {}
    asked: list[KnownQuestion] = []
    for number, article in enumerate(loaded):
        home: Place = "device" if number in device else "cloud"
        for part, paragraph in enumerate(article["paragraphs"]):
            name = f"{number}-{part}.txt"
            texts[name], homes[name] = paragraph["text"], home
            asked += [
                KnownQuestion(
                    each["question"], tuple(each["answers"]), home, article["title"], name
                )
                for each in paragraph["questions"]
            ]
    order = [list(texts)[i] for i in random.permutation(len(texts))]
    ends = round(BOTH * len(order)), round((BOTH + NOWHERE) * len(order))
    moved: dict[Place, list[str]] = {"both": order[: ends[0]], "nowhere": order[ends[0] : ends[1]]}
    yield _written(folder / "home", texts, homes, asked)
    for place, names in moved.items():
        again = [replace(each, place=place) for each in asked if each.source in names]
        yield _written(folder / place, texts, homes | dict.fromkeys(names, place), again)


def _made(folder: Path, seed: int) -> World:
    texts: dict[str, str] = {}
    homes: dict[str, Place] = {}
    asked: list[KnownQuestion] = []
    for place, several in world(seed).items():
        for number, each in enumerate(several):
            name = f"{place}-{number}.txt"
            if each.document:
                texts[name], homes[name] = each.document, place
            answers = (_LEADING.sub("", each.answer),) if each.answer else ()
            asked.append(KnownQuestion(each.question, answers, place, name, name))
    return _written(folder, texts, homes, asked)


def _named(loaded: Mapping[str, Any], base: Path) -> World:
    device, cloud = (tuple(base / each for each in loaded[side]) for side in ("device", "cloud"))
    asked = tuple(
        KnownQuestion(
            each["question"],
            tuple(each["answers"]),
            PLACES[PLACES.index(each["place"])],
            each.get("group", each["question"]),
        )
        for each in loaded["questions"]
    )
    return World(device, cloud, asked)


def _written(
    folder: Path,
    texts: Mapping[str, str],
    places: Mapping[str, Place],
    asked: Iterable[KnownQuestion],
) -> World:
    """Write each document to the sides where it stands."""
    sides = folder / "device", folder / "cloud"
    for side in sides:
        side.mkdir(parents=True)
        for name, text in texts.items():
            if places[name] in (side.name, "both"):
                (side / name).write_text(text, encoding="utf-8")
    return World((sides[0],), (sides[1],), tuple(asked))


def normalised(text: str) -> str:
    """Return the text in lower case, without punctuation, articles and extra spaces (SQuAD 1.1)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def contains(text: str, answers: Sequence[str]) -> bool:
    """Return whether one of the answers, normalised, stands within the text, as whole words."""
    words = f" {normalised(text)} "
    return any(f" {known} " in words for each in answers if (known := normalised(each)))


def f1(text: str, answers: Sequence[str]) -> float:
    """Return the greatest F1 of the text's words over those of each answer, from 0 to 1.

    An answer without words, such as "The", is right if the text has none either (SQuAD 1.1).
    """
    return max(
        (_f1(normalised(text).split(), normalised(each).split()) for each in answers), default=0.0
    )


def refuses(text: str, refusal: str) -> bool:
    """Return whether the text begins with the model's refusal, such as "I don't know."."""
    return f"{normalised(text)} ".startswith(f"{normalised(refusal)} ")


def _f1(text: Sequence[str], answer: Sequence[str]) -> float:
    if not text or not answer:
        return float(text == answer)
    common = (Counter(text) & Counter(answer)).total()
    return 2 * common / (len(text) + len(answer))
