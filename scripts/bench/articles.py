"""A corpus of 2,000 generated articles, and questions whose answering article is known.

Three quarters of the articles differ from their neighbours in names and numbers alone: a machine
and its errors, a person and a bill, a ship and its times. The others are advice about a pair of
things; questions name that pair in other words, so that no word of substance is shared.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

Kind = Literal["names and numbers", "paraphrase"]

_NAMES = [
    f"{start}{end}"
    for start in re.findall(
        r"\w+", "Al Bren Cor Dun El Far Gil Hol Iv Jor Kel Lor Mar Nor Os Pel Ran Sel Tar Vor"
    )
    for end in re.findall(
        r"\w+",
        "by da den dal ek feld gard heim ina ko lund mark nes ora quist rup stad vik wen zell",
    )
]
_REMEDIES = [*re.findall(r"\w+", "salt milk vinegar clay rest lemon bran soda honey chalk oil ash")]


def _pairs(text: str) -> list[tuple[str, str]]:
    """Things in the words of an article and in those of a question about it."""
    pairs = [pair.split(" = ") for pair in " ".join(text.split()).split("; ")]
    return [(article, question) for article, question in pairs]


_STAINS = _pairs("""
red wine = Merlot; ink = a leaking pen; grease = a fatty splash; blood = a bleeding cut; candle
wax = dripping tapers; rust = oxidised iron; chewing gum = something sticky that was chewed; mud
= wet dirt; coffee = a spilled espresso; mildew = a musty fungus; lipstick = make-up from a
kiss; soot = fireplace grime; tomato sauce = ketchup; varnish = a lacquer drip; grass = a fall
on the lawn; honey = what bees make
""")
_CLOTHS = _pairs("""
a wool carpet = a sheep's fleece rug; a leather sofa = a cowhide couch; a silk tie = fine
oriental neckwear; denim trousers = blue jeans; a wooden floor = parquet; a marble counter = a
polished stone worktop; a canvas tent = a camping shelter; a suede shoe = brushed hide footwear;
a linen tablecloth = flax dining textiles; a plastic chair = polymer seating; a brick wall =
masonry; a car seat = automobile upholstery; a straw hat = woven summer headgear; a mattress =
what one sleeps upon
""")
_AILMENTS = _pairs("""
fever = a high temperature; ticks = small bloodsucking parasites; a limp = trouble walking
evenly; a cough = noisy breathing from the chest; a rash = red itchy skin; worms = intestinal
parasites; bad teeth = dental decay; overweight = being too fat; fear of noise = panic at loud
bangs; loss of appetite = refusing meals; a broken nail = a cracked claw; watery eyes = tears
running down the face
""")
_ANIMALS = _pairs("""
a dog = my puppy; a horse = our mare; a rabbit = the bunny; a cow = dairy cattle; a sheep = my
ewe; a hen = poultry; a pig = the sow; a cat = my kitten; a goat = the nanny that gives milk for
cheese; a goose = a large white bird of the farmyard; a donkey = the long-eared beast of burden;
a parrot = the talking bird
""")


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
    for (stain, dirt), (cloth, thing) in product(_STAINS, _CLOTHS):
        first, second = rng.choice(_REMEDIES, 2, replace=False)
        yield Article(
            f"# Removing {stain} from {cloth}\n\nTo get {stain} out of {cloth}, put {first} on the "
            f"spot, wait {rng.integers(5, 60)} minutes and rinse it with {second}.",
            "paraphrase",
            f"How do I clean {thing} after {dirt}?",
        )
    for (ailment, trouble), (animal, ours) in product(_AILMENTS, _ANIMALS):
        first, second = rng.choice(_REMEDIES, 2, replace=False)
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
