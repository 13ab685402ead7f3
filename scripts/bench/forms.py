"""Documents made from forms, and questions that each of them answers. All follows from a seed.

`unseen.toml` has notes and articles in forms that no training saw; several documents have each form
and differ in names and numbers alone. What is tuned on these forms is tuned on other seeds than the
benchmark's. `articles.toml` has records that differ from their neighbours in names and numbers
alone, and advice about a pair of things, which questions name in other words.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scripts.bench.split_qa import generate

_NUMBERS = {
    "n": (3, 90),
    "hundred": (110, 990),
    "year": (1612, 1989),
    "hour": (6, 22),
    "date": (4, 21),
}
_OTHERS = {
    "month": ["January", "February", "March", "April", "June", "July", "August", "November"],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"],
}
_DISTRICTS = ["", "Old ", "Upper ", "East ", "Little "]
_LEADING = re.compile(r"^(in|on|at|with|for) ")


class Article(NamedTuple):
    """An article in Markdown, a question that it answers, and one that makes sense after it."""

    text: str
    kind: str
    question: str
    follow_up: str


@lru_cache(maxsize=2)
def forms(name: str) -> dict[str, Any]:
    """Return the forms and words of a file."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def articles(seed: int, count: int = 2000) -> list[Article]:
    """Return `count` articles in random order; all names and numbers follow from `seed`."""
    file, rng, made = forms("articles.toml"), np.random.default_rng(seed), list[Article]()

    def add(form: Mapping[str, Any], kind: str, words: Mapping[str, str]) -> None:
        drawn = {name: int(rng.integers(*bounds)) for name, bounds in form["numbers"].items()}
        parts = (form.get(part, "") for part in ("text", "question", "follow_up"))
        text, question, follow_up = (part.format(**words, **drawn) for part in parts)
        made.append(Article(text, kind, question, follow_up))

    for form in file["advice"]:
        things, owners = (file[name].items() for name in form["of"])
        for (thing, asked), (owner, ours) in product(things, owners):
            first, second = rng.choice(file["remedies"].split(), 2, replace=False)
            words = {"thing": thing, "asked": asked, "owner": owner, "ours": ours}
            words |= {"Thing": thing.capitalize(), "first": first, "second": second}
            add(form, "paraphrase", words)
    starts, ends = (file[part].split() for part in ("first", "last"))
    names = [str(name) for name in rng.permutation([a + b for a, b in product(starts, ends)])]
    for i in range(count - len(made)):
        words = {"name": names[i % 400], "other": names[i // 400]}
        add(file["record"][i % 3], "names and numbers", words)
    return [made[i] for i in rng.permutation(len(made))]


def similar(seed: int, count: int) -> list[Article]:
    """Return notes of one sentence; no two are about one colour, thing and place."""
    file, rng, made = forms("similar.toml"), np.random.default_rng(seed), dict[str, Article]()
    texts = [*file["asked"].items(), *dict.fromkeys(file["others"], "").items()]
    while len(made) < count:
        words = {name: str(rng.choice(each.split())) for name, each in file["words"].items()}
        words |= {name: str(rng.integers(*bounds)) for name, bounds in file["numbers"].items()}
        text, question = (each.format(**words) for each in texts[rng.integers(len(texts))])
        kind = "reference number" if "R-" in question else "other words" if question else ""
        about = "{place} {colour} {thing}".format(**words)
        made.setdefault(about, Article(text, kind, question, ""))
    return [*made.values()]


def notes(seed: int, count: int = 200, public: int = 500, absent: int = 60) -> generate.World:
    """Return a world of so many notes of the device, articles of the cloud, and absent answers.

    What is nowhere is asked in the forms of notes, about what no document says.
    """
    random, file = np.random.default_rng(seed), forms("unseen.toml")
    private = _documents(random, file["note"], count + absent)
    several = {"device": private[:count], "cloud": _documents(random, file["article"], public)}
    made: generate.World = {"name": "notes", "device": {}, "cloud": {}, "questions": []}
    for place, documents in (several | {"nowhere": private[count:]}).items():
        for number, (text, question, answer) in enumerate(documents):
            name = f"{place}-{number}.txt"
            made.get(place, {})[name] = text
            answers = [] if place == "nowhere" else [_LEADING.sub("", answer)]
            asked = {"question": question, "answers": answers, "place": place, "id": name}
            made["questions"].append(asked | {"group": name, "source": name})
    return made


def _documents(
    random: np.random.Generator, forms: Sequence[Mapping[str, Any]], count: int
) -> list[list[str]]:
    """Return documents in random order, each with a question that names no other of its form."""
    made, named = list[list[str]](), set[str]()
    for form in cycle(forms):
        if len(made) == count:
            break
        asked = form["asked"][int(random.integers(len(form["asked"])))]
        values = _values(random, form["text"])
        names = {_filled(each, values) for each, _ in form["asked"]}
        if not names & named:
            named |= names
            made.append([_filled(each, values) for each in (form["text"], *asked)])
    return [made[i] for i in random.permutation(count)]


def _values(random: np.random.Generator, template: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for slot in sorted(set(re.findall(r"\{(\w+)\}", template))):
        while (value := _value(random, slot.rstrip("2"))) in values.values():
            pass
        values[slot] = value
    return values


def _value(random: np.random.Generator, sort: str) -> str:
    if sort in _NUMBERS:
        return str(random.integers(*_NUMBERS[sort]))
    district = random.choice(_DISTRICTS) if sort == "town" else ""
    words = _OTHERS.get(sort) or forms("unseen.toml")["words"][sort].split(", ")
    return f"{district}{random.choice(words)}"


def _filled(template: str, values: dict[str, str]) -> str:
    text = re.sub(r"\{(\w+)\}", lambda slot: values[slot[1]], template)
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
