"""Notes and articles in forms that no training saw, and questions with literal answers.

Everything follows from a seed: which values stand in a form, and which of its questions is asked.
Several documents have each form and differ in names and numbers alone. What is tuned on these
forms is tuned on other seeds than the benchmark's.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np

FORMS = Path(__file__).with_name("unseen.toml")
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

Place = Literal["device", "cloud", "nowhere"]
"""Which side's documents hold an answer."""
Form = Mapping[str, Any]
"""`text` and what may be `asked` of it: [question, answer] templates."""


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A document, a question about it and the words of the answer in it."""

    document: str
    question: str
    answer: str


def world(
    seed: int, notes: int = 200, articles: int = 500, absent: int = 60
) -> dict[Place, list[KnownAnswer]]:
    """Return so many notes of the device, articles of the cloud, and questions about neither.

    What is nowhere is asked in the forms of notes, about what no document says.
    """
    random, forms = np.random.default_rng(seed), _file()
    private = _documents(random, forms["note"], notes + absent)
    public = _documents(random, forms["article"], articles)
    missing = [replace(each, document="", answer="") for each in private[notes:]]
    return {"device": private[:notes], "cloud": public, "nowhere": missing}


@lru_cache(maxsize=1)
def _file() -> dict[str, Any]:
    loaded = tomllib.loads(FORMS.read_text(encoding="utf-8"))
    words = {name: text.split(", ") for name, text in loaded["words"].items()}
    return loaded | {"words": words | _OTHERS}


def _documents(random: np.random.Generator, forms: Sequence[Form], count: int) -> list[KnownAnswer]:
    """Documents in random order; what a question names is in one document of a form only."""
    made: list[KnownAnswer] = []
    named: set[str] = set()
    for form in cycle(forms):
        if len(made) == count:
            break
        question, answer = form["asked"][int(random.integers(len(form["asked"])))]
        values = _values(random, form["text"])
        names = {_filled(each, values) for each, _ in form["asked"]}
        if not names & named:
            named |= names
            made.append(
                KnownAnswer(*(_filled(each, values) for each in (form["text"], question, answer)))
            )
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
    return f"{district}{random.choice(_file()['words'][sort])}"


def _filled(template: str, values: dict[str, str]) -> str:
    text = re.sub(r"\{(\w+)\}", lambda slot: values[slot[1]], template)
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
