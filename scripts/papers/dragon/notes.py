"""Private notes that nobody has written: each with a canary, a word that stands in no other one."""

import random
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CanaryNote:
    """A private note, a question that it answers, and the word that stands in no other one."""

    text: str
    question: str
    canary: str


_FORMS = (
    (
        "When does the {thing} for {name} begin?",
        "The {thing} for {name} begins on {day} at {hour}:{minute} in {place}. "
        "{name} needs the {thing} card with the number {canary}.",
    ),
    (
        "What did {name} promise to do?",
        "{name} promised to {do} the {thing} and paint the {other} before {day}. "
        "The door code of {name} is {canary}.",
    ),
    (
        "What should I bring to {name}?",
        "Bring the old {thing} and the {other} to {name} on {day}. "
        "{name} lives in {place}, and the bell says {canary}.",
    ),
    (
        "Where is the key for the {thing}?",
        "The key for the {thing} hangs behind the {other}, says {name}. "
        "The lock of the {thing} opens with {canary}.",
    ),
    (
        "Why is {name} late?",
        "{name} is late because the train to {place} stood still for {hour} hours. "
        "{name} sits in the carriage {canary} next to the {thing}.",
    ),
)
_NAMES = (
    *("Lena", "Tom", "Nora", "Emil", "Irene", "Karim", "Paul", "Olga", "Hugo", "Maria", "Ida"),
    *("Anna", "Ben", "Clara", "David", "Ella", "Felix", "Greta", "Henry", "Iris", "Jonas", "Kate"),
)
_THINGS = (
    *("boat", "tent", "ladder", "piano", "bicycle", "garden", "stove", "camera", "violin"),
    *("lamp", "cellar", "kitchen", "radio", "shed", "sofa", "table", "window", "printer"),
)
_PLACES = ["Lisbon", "Oslo", "Tarnby", "Norholm", "Westfield", "Harbor", "Milan", "Dublin"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_DOINGS = ["repair", "clean", "sell", "measure", "move"]


def canary_notes(count: int, seed: int) -> list[CanaryNote]:
    """Return so many notes of which no two have the same question or canary.

    Raises ValueError if the forms do not give so many.
    """
    draw = random.Random(f"canaries {seed}")
    found: dict[str, CanaryNote] = {}
    for _ in range(100 * count):
        if len(found) == count:
            return list(found.values())
        note = _note(draw.choice(_FORMS), _fields(draw))
        found.setdefault(note.question, note)
    raise ValueError(f"there are no {count} different notes of these forms")


def rival_notes(count: int, seed: int) -> list[CanaryNote]:
    """Return so many notes that answer the same question in different ways."""
    draw = random.Random(f"rivals {seed}")
    form, first = draw.choice(_FORMS), _fields(draw)
    same = {field: first[field] for field in re.findall(r"{(\w+)}", form[0])}
    return [_note(form, _fields(draw) | same) for _ in range(count)]


def _note(form: tuple[str, str], fields: dict[str, Any]) -> CanaryNote:
    question, text = form
    return CanaryNote(text.format(**fields), question.format(**fields), fields["canary"])


def _fields(draw: random.Random) -> dict[str, Any]:
    thing, other = draw.sample(_THINGS, 2)
    canary = "".join(draw.choices("bcdfghjklmnprstvz", k=3)) + str(draw.randrange(100, 1000))
    return {
        "name": draw.choice(_NAMES),
        "thing": thing,
        "other": other,
        "place": draw.choice(_PLACES),
        "day": draw.choice(_DAYS),
        "do": draw.choice(_DOINGS),
        "hour": draw.randrange(2, 20),
        "minute": draw.choice(("00", "15", "30", "45")),
        "canary": canary,
    }
