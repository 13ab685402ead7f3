"""A corpus of 2,000 generated articles, and questions whose answering article is known.

Three quarters of the articles differ from their neighbours in names and numbers alone. The others
are advice about a pair of things; questions name that pair in other words, so that no word of
substance is shared. Forms and words are in articles.toml.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

Kind = Literal["names and numbers", "paraphrase"]

_FILE = tomllib.loads(Path(__file__).with_name("articles.toml").read_text(encoding="utf-8"))
_NAMES = [f"{start}{end}" for start in _FILE["first"].split() for end in _FILE["last"].split()]
_REMEDIES = _FILE["remedies"].split()


@dataclass(frozen=True, slots=True)
class Article:
    """An article in Markdown, a question that it answers, and one that makes sense after it."""

    text: str
    kind: Kind
    question: str
    follow_up: str = ""


def articles(seed: int, count: int = 2000) -> list[Article]:
    """Return `count` articles in random order; all names and numbers follow from `seed`."""
    rng, made = np.random.default_rng(seed), list[Article]()
    for form in _FILE["advice"]:
        things, owners = (_FILE[name].items() for name in form["of"])
        for (thing, asked), (owner, ours) in product(things, owners):
            first, second = rng.choice(_REMEDIES, 2, replace=False)
            words = {"thing": thing, "asked": asked, "owner": owner, "ours": ours}
            words |= {"Thing": thing.capitalize(), "first": first, "second": second}
            made.append(_article(form, "paraphrase", rng, words))
    names = [str(name) for name in rng.permutation(_NAMES)]
    for i in range(count - len(made)):
        words = {"name": names[i % 400], "other": names[i // 400]}
        made.append(_article(_FILE["record"][i % 3], "names and numbers", rng, words))
    return [made[i] for i in rng.permutation(len(made))]


def _article(
    form: Mapping[str, Any], kind: Kind, rng: np.random.Generator, words: Mapping[str, str]
) -> Article:
    drawn = {name: int(rng.integers(*bounds)) for name, bounds in form["numbers"].items()}
    text, question, follow_up = (
        form.get(part, "").format(**words, **drawn) for part in ("text", "question", "follow_up")
    )
    return Article(text, kind, question, follow_up)
