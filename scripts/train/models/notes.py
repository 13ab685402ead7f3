"""Private notes: a few filled statements, and questions about some of them."""

import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from random import Random

from .sample import UNKNOWN, Asking, Fact, Sample, answering, asked, token_estimate
from .values import (
    capitalized,
    draw,
    fill,
    form,
    generate,
    read_blocks,
    read_lines,
    slots_of,
    word,
    word_lists,
    word_set,
)

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


@cache
def statements() -> tuple[Statement, ...]:
    """All statements that answer at least one question."""
    found: list[Statement] = []
    for kind, lines in read_blocks("notes_by_kind.txt").items():
        found += _of_kind(kind, lines)
    for line in read_lines("notes_free.txt"):
        template, *asked = line.split(" || ")
        pairs = _pairs(asked)
        missing = {s for pair in pairs for part in pair for s in slots_of(part)}
        if missing - slots_of(template):
            raise ValueError(f"a question has a slot that its statement lacks: {line}")
        kind = f"free {zlib.crc32(template.encode()) % 10000}"
        found.append(Statement(kind, template, pairs))
    return tuple(statement for statement in found if statement.questions)


def _pairs(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((question, answer) for question, answer in (t.split(" | ") for t in texts))


def _of_kind(kind: str, lines: list[str]) -> list[Statement]:
    templates = [line[3:] for line in lines if line.startswith("S: ")]
    pairs = _pairs(line[3:] for line in lines if line.startswith("Q: "))
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


@cache
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


_LONGEST = 66  # words and punctuation marks of one note
_UNKNOWN_SHARE = 0.14


def note(
    r: Random, held_out: bool = False, asking: Asking = None, turns: int | None = None
) -> Sample:
    """A note of one to four facts and questions about it.

    With `held_out` the first fact is of a statement that training never sees; with `asking`
    "answer" only that fact is asked about.
    """
    while True:
        first = _fact(r, held_out)
        facts = _with_more_facts(r, first)
        known = _unambiguous([first] if asking == "answer" else facts, facts)
        r.shuffle(known)
        n = turns or r.choice([1, 2, 2, 3, 3, 4])
        pairs = _ask(r, facts, known[:n], n, asking)
        if pairs:
            break
    r.shuffle(facts)
    document = _joined(r, facts)
    if r.random() < 0.06:
        document = document.lower()
        pairs = [(q.lower(), a if a == UNKNOWN else a.lower()) for q, a in pairs]
    return answering(document, pairs)


def fact(r: Random) -> Fact:
    """One fact of any kind that training sees."""
    return _fact(r, held_out=False)


def _with_more_facts(r: Random, first: Fact) -> list[Fact]:
    n = r.choice([1, 1, 2, 2, 3, 3, 4])
    facts = [first]
    while len(facts) < n:
        # Another fact of the same kind makes the reader tell them apart.
        other = _fact(r, False, first.kind if r.random() < 0.3 else None)
        if other.kind in ("list", "table") and any(f.kind == other.kind for f in facts):
            continue
        length = token_estimate(" ".join(f.text for f in facts)) + token_estimate(other.text)
        if length > _LONGEST:
            break
        facts.append(other)
    return facts


def _unambiguous(asked_about: list[Fact], facts: list[Fact]) -> list[tuple[str, str]]:
    pairs = []
    for f in asked_about:
        others = [g for g in facts if g is not f]
        elsewhere = {question for g in others for question, _ in g.questions}
        has_twin = any(g.kind == f.kind for g in others)
        pairs += [
            (question, answer)
            for question, answer in f.questions
            if question not in elsewhere and not (has_twin and question in f.general)
        ]
    return pairs


def _ask(
    r: Random, facts: list[Fact], known: list[tuple[str, str]], n: int, asking: Asking
) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for _ in range(n):
        nothing_known = not (known or pairs)
        if asking == "unknown" or nothing_known or (not asking and r.random() < _UNKNOWN_SHARE):
            foreign = _foreign_questions(r, facts)
            if foreign:
                pairs.append((asked(r, r.choice(foreign)), UNKNOWN))
                continue
            if asking == "unknown":
                return []
        if known:
            question, answer = known.pop()
            pairs.append((asked(r, question), answer))
    return pairs


def _foreign_questions(r: Random, facts: list[Fact]) -> list[str]:
    """Questions about a fact that is not in the note; half of the time of the same kind."""
    other = _fact(r, False, facts[0].kind if r.random() < 0.5 else None)
    if other.kind == "list":
        return []
    here = {question for f in facts for question, _ in f.questions}
    twin = any(f.kind == other.kind for f in facts)
    text = " ".join(f.text for f in facts).lower()
    return [
        question
        for question, _ in other.questions
        if question not in here
        and not (twin and question in other.general)
        and not (other.kind == "table" and any(w in text for w in content_words(question)))
    ]


def _joined(r: Random, facts: list[Fact]) -> str:
    sentences = [f.text for f in facts]
    if r.random() < 0.3:
        sentences.insert(r.randint(0, len(sentences)), word(r, "filler"))
    heading = word(r, "heading") + " " if r.random() < 8 / 14 else ""
    if r.random() < 5 / 6:
        return heading + " ".join(sentences)
    bullet = "- " if r.random() < 0.6 else ""
    return heading + "\n".join(bullet + sentence for sentence in sentences)


def _fact(r: Random, held_out: bool, kind: str | None = None) -> Fact:
    pool = _pools()[held_out]
    same = [s for s in pool if s.kind == kind]
    if not same and not held_out:
        x = r.random()
        for share, make in _SHAPES:
            x -= share
            if x < 0:
                return make(r)
    statement = r.choice(same or pool)
    values = draw(r, slots_of(statement.template))
    return Fact(
        statement.kind,
        capitalized(fill(statement.template, values)),
        tuple((fill(q, values), fill(a, values)) for q, a in statement.questions),
        frozenset(q for q, _ in statement.questions if not slots_of(q)),
    )


@cache
def _pools() -> dict[bool, list[Statement]]:
    return {held: [s for s in statements() if s.held_out == held] for held in (False, True)}


_WHEN = "{on {date}|on {weekday}|at {time}|in {month}|in {year}|yesterday|last week|two days ago}"
_WHERE = "{in {city}|at the {landmark}|near the {landmark}|in the {homeroom}}"
_CAUSE = (
    "{because it was {weather}|because {first name} was sick|"
    "because the {appliance} was broken|||||}"
)


def _event(r: Random) -> Fact:
    """Somebody did something, somewhere, some time, with somebody, for a reason."""
    past, base, object_slot = word(r, "verb").split("/")
    slots = {"p", "date", "day", "time", "city", "landmark", "price", "p3", object_slot}
    values = draw(r, slots)
    thing = values[object_slot]
    if object_slot not in word_set("without article"):
        thing = r.choice(["the ", "a ", "the "]) + thing
    elif object_slot == "account":
        thing = f"the {thing} account"
    thing = fill("{thing}", {"thing": thing})
    when = form(r, _WHEN, {slot: values[slot] for slot in ("date", "time")})
    where = ""
    if object_slot not in ("city", "landmark"):
        where = form(r, _WHERE, {slot: values[slot] for slot in ("city", "landmark")})
    companion = r.choice(["with", "for", "", "", ""])
    cause = form(r, _CAUSE)
    where = where if r.random() < 0.6 else ""
    when = when if r.random() < 0.75 else ""
    together = f"{companion} {values['p3']}" if companion else ""
    who, known_thing = values["p"], re.sub(r"^an? ", "the ", thing)
    begins_with_time = bool(when) and r.random() < 0.3
    parts = [where, together, "" if begins_with_time else when, cause]
    text = " ".join(part for part in [f"{who} {past} {thing}", *parts] if part)
    if begins_with_time:
        text = f"{capitalized(when)} {text}"
    pronoun = "Who" if object_slot == "p2" else "What"
    questions = [(f"Who {past} {known_thing}?", who), (f"{pronoun} did {who} {base}?", thing)]
    for asked_for, answer in (("Where", where), ("When", when), ("Why", cause)):
        if answer:
            questions.append((f"{asked_for} did {who} {base} {known_thing}?", answer))
    if companion:
        questions.append((f"Who did {who} {base} {known_thing} {companion}?", values["p3"]))
    return Fact(f"event {base}", capitalized(text) + ".", tuple(questions))


def _list(r: Random) -> Fact:
    head, pool = word(r, "kind of list").split(": ")
    n = r.randint(3, 5)
    items = r.sample(word_lists()[pool], n)
    numbered = "; ".join(f"{i}. {item}" for i, item in enumerate(items, 1))
    joined = f"{', '.join(items[:-1])} and {items[-1]}."
    text = r.choice([f"{head}: {', '.join(items)}.", f"{head}: {joined}", f"{head} - {numbered}"])
    i = r.randrange(n)
    position = ["first", "second", "third", "fourth", "fifth"][i]
    questions = (
        (f"What is on the list of {head.lower()}?", ", ".join(items)),
        (f"What is the {position} entry of the list?", items[i]),
        ("What is the last entry of the list?", items[-1]),
        ("How many entries are on the list?", ["three", "four", "five"][n - 3]),
    )
    return Fact("list", text, questions, frozenset(question for question, _ in questions[1:]))


def _table(r: Random) -> Fact:
    """Terse `key: value` records, the other common shape of private notes."""
    chosen = r.sample(word_lists()["field of a record"], r.randint(2, 4))
    fields = [(key, slot, generate(r, slot)) for key, slot in (one.split(": ") for one in chosen)]
    head = form(r, "{||{event!sentence} - |{obj!sentence}: |Booking: |Details: }")
    between = r.choice(["; ", ", ", ". "])
    text = between.join(f"{key}{r.choice([': ', ' ', ' - ', ': '])}{v}" for key, _, v in fields)
    questions = []
    for key, slot, v in fields:
        pronoun = "Who" if slot == "p" and key != "Name" else "What"
        long = f"{pronoun} is the {key.lower()}?"
        questions.append((long if r.random() < 0.8 else f"{key}?", v))
    return Fact("table", f"{head}{text}.", tuple(questions))


_SHAPES: tuple[tuple[float, Callable[[Random], Fact]], ...] = (
    (0.16, _event),
    (0.04, _list),
    (0.07, _table),
)
