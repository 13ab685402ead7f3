"""Questions that need two documents: bridges, and later turns about what an earlier one named.

A mixture has no attention between its rows. So a bridge's answer says first what the one side
knows, which tells the other side which of its values is meant: "Friday at 15:00".
"""

from random import Random
from typing import NamedTuple

from .adapter_notes import Told, note
from .sample import UNKNOWN, Turn
from .values import capitalized, draw, fill, form, generate, phrased, read_lines, slots_of, word

_OF_ONE = {"k", "v", "sub", "poss"}  # slots of one subject


class Joined(NamedTuple):
    """Documents, and turns about them with the numbers of the documents that they need."""

    documents: list[Told]
    asked: list[tuple[list[Turn], tuple[int, ...]]]


def bridge(r: Random) -> Joined:
    """Return what tells the key, and a table by that key; sometimes one of them only."""
    line = phrased(r, r.choice(read_lines("adapter_bridges.txt")))
    key, value, *texts = line.split(" || ")
    keys = list(dict.fromkeys(form(r, key) for _ in range(40)))[: r.choice([2, 3, 3, 4, 5, 6])]
    values = list(dict.fromkeys(form(r, value) for _ in range(60)))[: len(keys)]
    if len(values) < 2:
        return bridge(r)
    pairs = list(zip(keys, values, strict=False))
    statement, head, row, question, answer, alone = texts
    given = {"hobby": word(r, "hobby")}
    given |= {"Hobby": capitalized(given["hobby"])}
    slots = draw(r, slots_of(line) - _OF_ONE, given=given)
    subjects = r.sample(["I", "we", *(generate(r, "p") for _ in range(3))], 3)
    count = r.choice([1, 2, 2, 3]) if "{sub}" in line or "{poss" in line else 1
    said, asked = list[str](), list[tuple[str, str, str]]()
    for subject, (k, v) in zip(subjects, r.sample(pairs, min(count, len(pairs))), strict=False):
        whose = {"I": "my", "we": "our"}.get(subject, f"{subject}'s")
        own = slots | {"k": k, "v": v, "sub": subject, "poss": whose}
        said.append(f"{capitalized(form(r, fill(statement, own)))}.")
        texts = [capitalized(form(r, fill(question, own))), fill(answer, own), fill(alone, own)]
        asked.append((texts[0], texts[1], UNKNOWN if alone == "-" else texts[2]))
    rows = [fill(row, slots | {"k": a, "v": b}) for a, b in pairs]
    head = capitalized(form(r, fill(head, slots)))
    table = _table(r, head, rows)
    if r.random() < 0.25:
        mark = r.choice(["\t", " | "])
        table = "\n".join([head.removesuffix(" ..."), *(f"{a}{mark}{b}" for a, b in pairs)])
    holder = note(r, Told(" ".join(said), [], []))
    rest = Told(table, [], []) if r.random() < 0.5 else note(r, Told(table, [], []))
    x = r.random()
    if x < 0.80:
        return Joined([holder, rest], [([(q, whole)], (0, 1)) for q, whole, _ in asked])
    if x < 0.87:
        return Joined([holder], [([(q, first)], (0,)) for q, _, first in asked])
    return Joined([rest], [([(q, UNKNOWN)], ()) for q, _, _ in asked])


def _table(r: Random, head: str, rows: list[str]) -> str:
    """Return rows behind their head, as lines or as a sentence."""
    prose = f"{', '.join(rows[:-1])} and {rows[-1]}"
    if head.endswith(" ..."):
        return f"{head.removesuffix(' ...')} {prose}."
    shown = r.choice([*(mark.join(rows) for mark in ("\n", "\n", ", ", "; ")), prose])
    return head + r.choice([": ", ":\n", "\n"]) + shown


def link(r: Random) -> Joined:
    """Return two documents and a talk: what the first names is asked about in the second."""
    line = phrased(r, r.choice(read_lines("adapter_links.txt")))
    given = {slot: word(r, slot) for slot in ("hobby", "cause", "med")}
    dish, thing = generate(r, "dish"), word(r, "device")
    given |= {"thing1": thing, "Med": capitalized(given["med"]), "dish": dish}
    given |= {"Dish": capitalized(dish), "two": generate(r, "two words")}
    slots = draw(r, slots_of(line), given=given)
    one, two, question, answer, *later = (fill(text, slots) for text in line.split(" || "))
    first, second = (note(r, Told(capitalized(x), [], [])) for x in (one, two))
    named = (capitalized(question), answer)
    asked: list[tuple[list[Turn], tuple[int, ...]]] = [([named], (0,))]
    there = r.random() < 0.8
    for each in r.sample(later, min(2, len(later))):
        then, _, said = each.partition(" | ")
        asked.append(([named, (then, said if there else UNKNOWN)], (1,) if there else ()))
    if first.missing and r.random() < 0.5:
        asked.append(([named, (r.choice(first.missing), UNKNOWN)], ()))
    return Joined([first, second] if there else [first], asked)
