"""Private notes that nobody has written: each with a canary, a word that stands in no other one."""

import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CanaryNote:
    """A private note, a question that it answers, and the word that stands in no other one."""

    text: str
    question: str
    canary: str


_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def canary_notes(count: int, seed: int) -> list[CanaryNote]:
    """Return so many notes of which no two have the same question or canary.

    Raises ValueError if the forms do not give so many.
    """
    draw = random.Random(f"canaries {seed}")
    found: dict[str, CanaryNote] = {}
    for _ in range(100 * count):
        if len(found) == count:
            return list(found.values())
        note = _note(draw.choice(_FILE["forms"]), _fields(draw))
        found.setdefault(note.question, note)
    raise ValueError(f"there are no {count} different notes of these forms")


def rival_notes(count: int, seed: int) -> list[CanaryNote]:
    """Return so many notes that answer the same question in different ways."""
    draw = random.Random(f"rivals {seed}")
    form, first = draw.choice(_FILE["forms"]), _fields(draw)
    same = {field: first[field] for field in re.findall(r"{(\w+)}", form[0])}
    return [_note(form, _fields(draw) | same) for _ in range(count)]


def _words(kind: str) -> list[str]:
    found: list[str] = _FILE[kind].split(", ")
    return found


def _note(form: tuple[str, str], fields: dict[str, Any]) -> CanaryNote:
    question, text = form
    return CanaryNote(text.format(**fields), question.format(**fields), fields["canary"])


def _fields(draw: random.Random) -> dict[str, Any]:
    thing, other = draw.sample(_words("things"), 2)
    canary = "".join(draw.choices("bcdfghjklmnprstvz", k=3)) + str(draw.randrange(100, 1000))
    return {
        "name": draw.choice(_words("names")),
        "thing": thing,
        "other": other,
        "place": draw.choice(_words("places")),
        "day": draw.choice(_words("days")),
        "do": draw.choice(_words("doings")),
        "hour": draw.randrange(2, 20),
        "minute": draw.choice(("00", "15", "30", "45")),
        "canary": canary,
    }
