"""A corpus of 2,000 generated articles, and questions whose answering article is known.

Three quarters of the articles differ from their neighbours in names and numbers alone: a machine
and its errors, a person and a bill, a ship and its times. The others are advice about a pair of
things; questions name that pair in other words, so that no word of substance is shared.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np

Kind = Literal["names and numbers", "paraphrase"]

_WORDS = tomllib.loads(Path(__file__).with_name("articles.toml").read_text(encoding="utf-8"))
_NAMES = [f"{start}{end}" for start in _WORDS["first"].split() for end in _WORDS["last"].split()]


@dataclass(frozen=True, slots=True)
class Article:
    """An article in Markdown, a question that it answers, and one that makes sense after it."""

    text: str
    kind: Kind
    question: str
    follow_up: str = ""


def articles(seed: int, count: int = 2000) -> list[Article]:
    """`count` articles in random order; all names and numbers follow from `seed`."""
    rng = np.random.default_rng(seed)
    made = [*_advice(rng)]
    names = [str(name) for name in rng.permutation(_NAMES)]
    records = (_machine, _person, _ship)
    made += [records[i % 3](rng, names[i % 400], names[i // 400]) for i in range(count - len(made))]
    return [made[i] for i in rng.permutation(len(made))]


def _advice(rng: np.random.Generator) -> Iterator[Article]:
    for (stain, dirt), (cloth, thing) in product(
        _WORDS["stains"].items(), _WORDS["cloths"].items()
    ):
        first, second = rng.choice(_WORDS["remedies"].split(), 2, replace=False)
        yield Article(
            f"# Removing {stain} from {cloth}\n\nTo get {stain} out of {cloth}, put {first} on the "
            f"spot, wait {rng.integers(5, 60)} minutes and rinse it with {second}.",
            "paraphrase",
            f"How do I clean {thing} after {dirt}?",
        )
    for (ailment, trouble), (animal, ours) in product(
        _WORDS["ailments"].items(), _WORDS["animals"].items()
    ):
        first, second = rng.choice(_WORDS["remedies"].split(), 2, replace=False)
        yield Article(
            f"# {ailment.capitalize()} in {animal}\n\nAgainst {ailment} in {animal} give {first} "
            f"for {rng.integers(2, 9)} days, then {second}. If it stays, call the vet.",
            "paraphrase",
            f"What helps {ours} with {trouble}?",
        )


def _machine(rng: np.random.Generator, name: str, other: str) -> Article:
    error, minutes, bar = rng.integers(1000, 10000), rng.integers(2, 50), rng.integers(1, 9)
    return Article(
        f"# {name} {other} pump\n\nThe {name} {other} pump shows error E-{error} if the filter is "
        f"blocked.\n\n## Restart\n\nSwitch it off for {minutes} minutes. It runs at {bar} bar.",
        "names and numbers",
        f"What does error E-{error} on the pump mean?",
        "And how long must it be off?",
    )


def _person(rng: np.random.Generator, name: str, other: str) -> Article:
    bill, euros, day = rng.integers(10000, 99999), rng.integers(20, 900), rng.integers(1, 29)
    return Article(
        f"# {name} {other}\n\n{name} {other} is a plumber. Bill {bill} for {euros} euros is to be "
        f"paid by the {day}th.\n\nThe workshop is in {other}heim, open from {rng.integers(6, 11)}.",
        "names and numbers",
        f"By when must the bill of {name} {other} be paid?",
        "And where is the workshop?",
    )


def _ship(rng: np.random.Generator, name: str, other: str) -> Article:
    hour, quay, number = rng.integers(5, 23), rng.integers(1, 30), rng.integers(100, 1000)
    return Article(
        f"# Line {number}\n\nThe ship {name} of line {number} sails to {other} at {hour}:15 from "
        f"quay {quay}.\n\n## Fares\n\nA crossing costs {rng.integers(3, 60)} euros, dogs are free.",
        "names and numbers",
        f"When does the ship {name} sail to {other}?",
        "And what does it cost?",
    )
