"""Templates of notes, and which questions each statement answers.

A block of notes_by_kind.txt has statements and questions of one kind; a question belongs to a
statement when the statement has all its slots and shares most of its words. notes_free.txt names
the questions of each statement outright. Every tenth statement is held out for evaluation.
"""

import re
import zlib
from dataclasses import dataclass
from functools import lru_cache

from .values import read_blocks, read_lines, slots_of, word_lists

HELD_OUT_SHARE = 10


@dataclass(frozen=True, slots=True)
class Statement:
    """A template with the (question, answer) templates that it admits."""

    kind: str
    template: str
    questions: tuple[tuple[str, str], ...]

    @property
    def held_out(self) -> bool:
        return zlib.crc32(self.template.encode()) % HELD_OUT_SHARE == 0


@lru_cache(maxsize=1)
def statements() -> tuple[Statement, ...]:
    """All statements that answer at least one question."""
    found: list[Statement] = []
    for kind, lines in read_blocks("notes_by_kind.txt").items():
        found += _of_kind(kind, lines)
    for line in read_lines("notes_free.txt"):
        template, *asked = line.split(" || ")
        pairs = tuple(_pair(text) for text in asked)
        missing = {s for pair in pairs for part in pair for s in slots_of(part)}
        if missing - slots_of(template):
            raise ValueError(f"a question has a slot that its statement lacks: {line}")
        kind = f"free {zlib.crc32(template.encode()) % 10000}"
        found.append(Statement(kind, template, pairs))
    return tuple(statement for statement in found if statement.questions)


def is_held_out(sentence: str) -> bool:
    """Whether a sentence has the form of a statement that is held out."""
    return _held_out_forms().fullmatch(sentence) is not None


@lru_cache(maxsize=1)
def _held_out_forms() -> re.Pattern[str]:
    forms = (re.split(r"\{\w+\^?\}", s.template) for s in statements() if s.held_out)
    return re.compile("|".join(".+".join(map(re.escape, form)) for form in forms), re.IGNORECASE)


def _pair(text: str) -> tuple[str, str]:
    question, answer = text.split(" | ")
    return question, answer


def _of_kind(kind: str, lines: list[str]) -> list[Statement]:
    templates = [line[3:] for line in lines if line.startswith("S: ")]
    pairs = [_pair(line[3:]) for line in lines if line.startswith("Q: ")]
    admitted: dict[str, list[tuple[str, str]]] = {
        template: [p for p in pairs if _has_slots(template, p) and _related(p[0], template)]
        for template in templates
    }
    placed = {pair for questions in admitted.values() for pair in questions}
    for pair in pairs:
        candidates = [template for template in templates if _has_slots(template, pair)]
        if pair in placed or not candidates:
            continue
        # A question worded unlike every statement goes to the closest one.
        best = max(candidates, key=lambda t: (_shared_words(pair[0], t), -len(slots_of(t))))
        if _shared_words(pair[0], best) or len(candidates) == 1:
            admitted[best].append(pair)
    return [Statement(kind, template, tuple(asked)) for template, asked in admitted.items()]


def _has_slots(template: str, pair: tuple[str, str]) -> bool:
    return slots_of(pair[0]) | slots_of(pair[1]) <= slots_of(template)


def content_words(text: str) -> list[str]:
    """The words of a template that carry meaning, in lower case."""
    plain = re.sub(r"\{.*?\}", " ", text).lower()
    stop = set(word_lists()["stop word"])
    return [w for w in re.findall(r"[a-z]+(?:-[a-z]+)?", plain) if w not in stop]


@lru_cache(maxsize=1)
def _meanings() -> dict[str, set[int]]:
    groups: dict[str, set[int]] = {}
    for index, group in enumerate(word_lists()["same meaning"]):
        for member in group.split():
            groups.setdefault(member, set()).add(index)
    return groups


def _shared_words(question: str, statement: str) -> int:
    """Content words of the question that the statement has, up to inflection and synonyms."""
    # "What time" is about a {time} slot.
    theirs = content_words(statement) + [s.rstrip("0123456789") for s in slots_of(statement)]
    stems = {w[:5] for w in theirs}
    meanings = {m for w in theirs for m in _meanings().get(w, set())}
    return sum(
        w[:5] in stems or bool(_meanings().get(w, set()) & meanings)
        for w in content_words(question)
    )


def _related(question: str, statement: str) -> bool:
    asked = len(content_words(question))
    return _shared_words(question, statement) >= -(-asked * 6 // 10)
