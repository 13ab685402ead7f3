"""Notes for an adapter's samples: diaries, mails, chats, leases, minutes, recipes, tables.

A note has facts (text/adapter_facts.txt), rules of what is allowed (text/adapter_rules.txt), lists
(text/adapter_lists.txt), and statements that are asked for yes or no (text/adapter_yes.txt), in one
of several layouts (text/adapter_layouts.txt). What it does not say is asked as a near miss; so is
what it says of another person, town or thing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from textwrap import wrap
from types import MappingProxyType

from retrieval.blocks import Document, Table
from retrieval.chunking import pieces
from scripts.train.models.sample import Turn
from scripts.train.models.values import (
    capitalized,
    draw,
    fill,
    form,
    generate,
    phrased,
    read_blocks,
    read_lines,
    slots_of,
    word,
)


@dataclass(frozen=True, slots=True)
class Told:
    """A text, what it answers, and questions that it does not answer."""

    text: str
    known: list[Turn]
    missing: list[str]


def _value(people: Sequence[str], r: Random, slot: str) -> str:
    if slot.rstrip("0123456789") == "p" and people and r.random() < 0.5:
        return r.choice(people)
    return generate(r, slot)


def fact(
    r: Random,
    line: str,
    people: Sequence[str] = (),
    given: Mapping[str, str] = MappingProxyType({}),
) -> Told:
    """Return a statement of a line, what it answers, and what not: of another town, for one."""
    statement, *asked = phrased(r, line).split(" || ")
    values = draw(r, slots_of(line), partial(_value, people), given)
    told = Told(capitalized(fill(statement, values)), [], [])
    for each in asked:
        question, _, answer = each.removeprefix("! ").partition(" | ")
        text = capitalized(fill(question, values))
        if each.startswith("! "):
            told.missing.append(text)
        else:
            told.known.append((text, fill(answer, values)))
        if named := sorted(slots_of(question) & slots_of(statement)):
            slot = r.choice(named)
            other = values | {slot: _value(people, r, slot)}
            told.missing.append(capitalized(fill(question, other)))
    return told


def yes_or_no(r: Random) -> Told:
    """A statement, asked for yes or no with its ground; a half of the answers are no."""
    line = phrased(r, r.choice(read_lines("adapter_yes.txt")))
    statement, slot, question, ground, relation = line.split(" || ")
    true, other = (generate(r, slot) if slot[0] != "{" else form(r, slot) for _ in range(2))
    asked = true if relation == "=" and r.random() < 0.5 else other
    holds = {
        "=": asked == true,
        "<": _numbers(asked) < _numbers(true),
        ">": _numbers(asked) > _numbers(true),
    }[relation]
    values = draw(r, slots_of(line) - {"k", "x"}, given={"k": true, "x": asked})
    text, question, ground = (fill(x, values) for x in (statement, question, ground))
    answer = f"{'Yes' if holds else 'No'}, {ground}"
    return Told(capitalized(text), [(capitalized(question), answer)], [])


def _numbers(text: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", text)]


def rule(r: Random) -> Told:
    """A rule, asked with its ground; of another activity nothing is known."""
    blocks = read_blocks("adapter_rules.txt")
    lines = r.sample(blocks["activity"], 2)
    told, other = (phrased(r, line).split(" | ") for line in lines)
    allowed = r.random() < 0.5
    rule = phrased(r, r.choice(blocks["allowed" if allowed else "forbidden"]))
    values = draw(r, slots_of(rule) - {"x", "is"})
    subject, question, elsewhere = (form(r, text) for text in (told[0], told[2], other[2]))
    text = fill(rule, values | {"x": subject, "is": told[1]})
    answer = f"{'Yes' if allowed else 'No'}, {text[0].lower()}{text[1:]}"
    return Told(f"{text}.", [(question, answer)], [elsewhere])


def list_of(r: Random) -> Told:
    """A list, written as lines or as a sentence."""
    line = phrased(r, r.choice(read_lines("adapter_lists.txt")))
    entry, count, *texts = line.split(" || ")
    low, high = map(int, count.split("-"))
    entries = list(dict.fromkeys(form(r, entry) for _ in range(r.randint(low, high) + 1)))[:high]
    values = draw(r, {slot for text in texts for slot in slots_of(text)})
    head, question, missing = (capitalized(form(r, fill(text, values))) for text in texts)
    if question.startswith("W"):
        question = question.rstrip(".?") + "?"
    joined = ", ".join(entries[:-1]) + f" and {entries[-1]}" if len(entries) > 1 else entries[0]
    mark = r.choice(["- ", "* ", "• ", "", "{n}. "])
    shown = "\n".join(mark.replace("{n}", str(n)) + x for n, x in enumerate(entries, 1))
    text = r.choice([f"{head}: {joined}.", f"{head}: {', '.join(entries)}", f"{head}:\n{shown}"])
    return Told(text, [(question, joined)], [missing])


def _units(r: Random, n: int, people: list[str]) -> list[Told]:
    facts = read_lines("adapter_facts.txt")
    chosen = r.sample(facts, min(n, len(facts)))
    found = []
    for line in chosen:
        x = r.random()
        if x < 0.55:
            found.append(fact(r, line, people))
        else:
            found.append(r.choice((rule, yes_or_no, yes_or_no, list_of))(r))
    return found


def note(r: Random, beside: Told | None = None) -> Told:
    """Return a note of some facts, rules and lists in one of several forms; `beside` among them."""
    people = [generate(r, "p") for _ in range(3)]
    wanted = r.choice([0, 0, 0, 1, 1, 2] if beside else [1, 1, 2, 2, 3, 3, 4, 6])
    told = [*_units(r, wanted, people), *([beside] if beside else [])]
    r.shuffle(told)
    asked = [q for t in told for q, _ in t.known]
    known = [turn for t in told for turn in t.known if asked.count(turn[0]) == 1]
    missing = [q for t in told for q in t.missing if q not in asked]
    text = _laid_out(r, [t.text for t in told]) if len(told) > 1 else told[0].text
    return Told(titled(r, text), known, missing)


def titled(r: Random, text: str) -> str:
    """Return a text, often after the title and heading that its chunk has."""
    if r.random() < 0.45:
        return text
    heads = read_blocks("adapter_rules.txt")["title"]
    title, heading = (capitalized(form(r, head)) for head in r.sample(heads, 2))
    return f"{title} › {heading}\n{text}" if r.random() < 0.3 else f"{title}\n{text}"


def _laid_out(r: Random, texts: list[str]) -> str:
    if r.random() < 0.1:
        return "\n".join(wrap(" ".join(texts), r.randint(38, 64)))  # as a PDF's lines are
    layout = phrased(r, r.choice(read_lines("adapter_layouts.txt"))).replace("\\n", "\n")
    head, line, between, end = ("" if each == "-" else each for each in layout.split(" || "))
    values = {"m": word(r, "month"), "p1": generate(r, "p")}
    values |= {name: word(r, "first name") for name in ("n1", "n2")}
    numbers = {"n": r.randint(1, 9), "d": r.randint(1, 10), "h": r.randint(8, 20), "min": 0}
    shown = []
    for text in texts:
        shown.append(
            form(r, line, values | {"text": text} | {k: f"{n}" for k, n in numbers.items()})
        )
        numbers["n"] += 1
        numbers["d"] += r.choice([1, 1, 2, 3])
        numbers["min"] += r.randint(1, 6)
    return form(r, head, values) + form(r, between).join(shown) + form(r, end, values)


def table(r: Random) -> list[Told]:
    """Return the chunks of a table of three to eight columns, and what is asked of each.

    What another row has, and a row and a column that are not there, are missing.
    """
    sort, *columns = r.choice(read_lines("adapter_tables.txt")).split(" || ")
    count = min(len(columns), r.choice([3, 3, 4, 5, 6, 8]))
    hidden, *shown = (column.split(" | ") for column in r.sample(columns, count))
    names = list(dict.fromkeys(generate(r, sort) for _ in range(r.choice([3, 4, 5, 6, 8, 12]))))
    absent = [x for x in (generate(r, sort) for _ in range(3)) if x not in names]
    key = "Name" if sort == "p" else capitalized(sort.split()[-1])
    rows = [[name, *(generate(r, column[1]) for column in shown)] for name in names]
    title = titled(r, "").strip()
    header = [key, *(column[0] for column in shown)]
    document = Document([Table(tuple(map(tuple, [header, *rows])))], title)
    chunks = [piece[0] for piece in pieces(document, r.choice([80, 128, 128]))]
    found = [Told(f"{title}\n{text}" if title else text, [], []) for text in chunks]
    for row in rows:
        for at, (*_, question) in enumerate(shown, 1):
            column = [each[at] for each in rows]
            asked = [(question.format(x=row[0]), row[at]), *_about(r, header, row, at, column)]
            for told, text in zip(found, chunks, strict=True):
                starts = f"{key}: {row[0]};", f"{row[0]}:"
                lines = [line for line in text.splitlines() if line.startswith(starts)]
                if any(f": {row[at]}" in line for line in lines):
                    told.known.extend(asked)
                elif not lines:
                    told.missing.append(asked[0][0])
    for told in found:
        told.missing.extend(hidden[2].format(x=name) for name in names)
        told.missing.extend(column[2].format(x=name) for name in absent for column in shown)
    return [told for told in found if told.known]


def _about(r: Random, header: list[str], row: list[str], at: int, column: list[str]) -> list[Turn]:
    """Return other questions of a cell: whether it is another one, and whose it alone is."""
    head, cell, shown, found = header[at], row[at], r.choice([row[at], *column]), list[Turn]()
    if r.random() < 0.2:
        says = f"{'Yes' if shown == cell else 'No'}, {cell}"
        found.append((f"Is {shown} the {head.lower()} of {row[0]}?", says))
    if r.random() < 0.3 and column.count(cell) == 1:
        found.append((f"Which {header[0].lower()} has {cell} as {head.lower()}?", row[0]))
    return found
