"""Notes for an adapter's samples: diaries, mails, chats, leases, minutes, recipes, tables.

A note has facts (text/adapter_facts.txt), rules of what is allowed (text/adapter_rules.txt) and
lists (text/adapter_lists.txt), in one of several layouts (text/adapter_layouts.txt). What it does
not say is asked as a near miss; so is what it says of another person.
"""

import re
from dataclasses import dataclass
from functools import cache, partial
from random import Random

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


def _value(people: list[str], r: Random, slot: str) -> str:
    if slot.rstrip("0123456789") == "p" and people and r.random() < 0.5:
        return r.choice(people)
    return generate(r, slot)


def _fact(r: Random, line: str, people: list[str]) -> Told:
    statement, *asked = phrased(r, line).split(" || ")
    asked_for = [x[2:] if x[0] == "!" else x.partition(" | ")[0] for x in asked]
    values = draw(r, set().union(*map(slots_of, [statement, *asked])), partial(_value, people))
    texts = [capitalized(fill(text, values)) for text in asked_for]
    known = [
        (text, fill(x.partition(" | ")[2], values))
        for text, x in zip(texts, asked, strict=True)
        if x[0] != "!"
    ]
    missing = [text for text, x in zip(texts, asked, strict=True) if x[0] == "!"]
    return Told(capitalized(fill(statement, values)), known, missing)


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
        if x < 0.62:
            found.append(_fact(r, line, people))
        else:
            found.append(rule(r) if x < 0.80 else list_of(r))
    return found


def note(r: Random, beside: Told | None = None) -> Told:
    """Return a note of some facts, rules and lists in one of several forms; `beside` among them."""
    people = [generate(r, "p") for _ in range(3)]
    wanted = r.choice([0, 0, 0, 1, 1, 2] if beside else [1, 1, 2, 2, 3, 3, 4, 6])
    told = [*_units(r, wanted, people), *([beside] if beside else [])]
    r.shuffle(told)
    asked = [q for t in told for q, _ in t.known]
    known = [turn for t in told for turn in t.known if asked.count(turn[0]) == 1]
    missing = [q for t in told for q in t.missing] + _of_others(r, told, people)
    missing = [q for q in dict.fromkeys(missing) if q not in asked]
    text = _laid_out(r, [t.text for t in told]) if len(told) > 1 else told[0].text
    return Told(titled(r, text), known, missing)


def titled(r: Random, text: str) -> str:
    """Return a text, often after the title and heading that its chunk has."""
    if r.random() < 0.45:
        return text
    heads = read_blocks("adapter_rules.txt")["title"]
    title, heading = (capitalized(form(r, head)) for head in r.sample(heads, 2))
    return f"{title} › {heading}\n{text}" if r.random() < 0.3 else f"{title}\n{text}"


def _of_others(r: Random, told: list[Told], people: list[str]) -> list[str]:
    """What the note says of another person than the one asked about."""
    document, found = " ".join(t.text for t in told), []
    for each in told:
        others = [name for name in people if name in document and name not in each.text]
        named = [(q, name) for q, _ in each.known for name in people if name in q]
        if others:
            found += [q.replace(name, r.choice(others)) for q, name in named]
    return found


def _laid_out(r: Random, texts: list[str]) -> str:
    if r.random() < 0.1:
        return _broken(r, texts)
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


def _broken(r: Random, texts: list[str]) -> str:
    """Lines cut as a PDF's text is, some words hyphenated at the end of a line."""
    width, lines, line = r.randint(38, 64), list[str](), ""
    for piece in " ".join(texts).split():
        if len(line) + len(piece) > width and line:
            cut = len(piece) // 2 if re.fullmatch(r"[a-z]{7,}", piece) and r.random() < 0.25 else 0
            lines.append(f"{line} {piece[:cut]}-" if cut else line)
            line = piece[cut:]
        else:
            line = f"{line} {piece}".strip()
    head = form(r, "{||Page {1-9} of {9-20}\n|AGREEMENT\n}")
    return head + "\n".join([*lines, line])


@cache
def _columns() -> dict[str, list[list[str]]]:
    """Of what the rows of a table are: columns as (header, slot, question)."""
    found = {}
    for line in read_lines("adapter_tables.txt"):
        rows, *columns = line.split(" || ")
        found[rows] = [column.split(" | ") for column in columns]
    return found


def table(r: Random) -> Told:
    """Return a table of up to eight columns, some of whose cells are asked for."""
    sort = r.choice(list(_columns()))
    columns = _columns()[sort]
    columns = r.sample(columns, min(len(columns), r.choice([3, 4, 5, 6, 7, 8])))
    shown, hidden = columns[: max(2, len(columns) - 1)], columns[max(2, len(columns) - 1) :]
    names = list(dict.fromkeys(generate(r, sort) for _ in range(r.choice([3, 4, 5, 6]))))
    absent = [x for x in (generate(r, sort) for _ in range(3)) if x not in names]
    header = ["Name" if sort == "p" else capitalized(sort.split()[-1]), *[c[0] for c in shown]]
    rows, known = [], []
    for name in names:
        cells = [generate(r, c[1]) for c in shown]
        rows.append([name, *cells])
        known += [(c[2].format(x=name), cell) for c, cell in zip(shown, cells, strict=True)]
        unique = [c for c in cells if all(c not in row for row in rows[:-1])]
        if unique and sort == "p" and r.random() < 0.3:
            at = cells.index(unique[0])
            known.append((f"Who has {unique[0]} as {shown[at][0].lower()}?", name))
    missing = [c[2].format(x=name) for name in names for c in hidden]
    missing += [c[2].format(x=name) for name in absent for c in shown]
    layout = r.choice(["md", "csv", "tab", "tab", "tab", "tab", "; ", "lines"])
    if layout == "md":
        lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
        lines.insert(1, "|" + "---|" * len(header))
    elif layout == "lines":
        heads = [head.lower() for head in header[1:]]
        fields = [", ".join(map(" ".join, zip(heads, row[1:], strict=True))) for row in rows]
        lines = [f"{row[0]}: {field}" for row, field in zip(rows, fields, strict=True)]
    else:
        mark = {"csv": ",", "tab": "\t"}.get(layout, layout)
        lines = [mark.join(f'"{c}"' if mark in c else c for c in row) for row in [header, *rows]]
    return Told(titled(r, "\n".join(lines)), known, missing)
