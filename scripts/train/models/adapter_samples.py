"""The samples of an adapter: documents as both sides find them, and questions about them.

Some questions need two documents: bridges, and later turns about what an earlier one named. A
mixture has no attention between its rows. So a bridge's answer says first what the one side knows,
which tells the other side which of its values is meant: "Friday at 15:00".
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

from dragonrt.cli.options import option
from scripts.train.models.adapter_articles import Article, Pieces, articles
from scripts.train.models.adapter_notes import Told, fact, note, table
from scripts.train.models.sample import UNKNOWN, Branch, Reading, Turn
from scripts.train.models.values import (
    capitalized,
    draw,
    fill,
    form,
    generate,
    phrased,
    read_lines,
    slots_of,
)

_OF_ONE = {"k", "v", "sub", "poss"}  # slots of one subject
Asked = tuple[list[Turn], tuple[int, ...]]  # turns, and the documents that the last one needs


class Joined(NamedTuple):
    """Documents, and turns about them with the numbers of the documents that they need."""

    documents: list[Told]
    asked: list[Asked]


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
    slots = draw(r, slots_of(line) - _OF_ONE)
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
    slots = draw(r, slots_of(line))
    one, two, question, answer, *later = (fill(text, slots) for text in line.split(" || "))
    first, second = (note(r, Told(capitalized(x), [], [])) for x in (one, two))
    named = (capitalized(question), answer)
    asked: list[Asked] = [([named], (0,))]
    there = r.random() < 0.8
    for each in r.sample(later, min(2, len(later))):
        then, _, said = each.partition(" | ")
        asked.append(([named, (then, said if there else UNKNOWN)], (1,) if there else ()))
    if first.missing and r.random() < 0.5:
        asked.append(([named, (r.choice(first.missing), UNKNOWN)], ()))
    return Joined([first, second] if there else [first], asked)


def named(r: Random, pieces: Pieces) -> Joined:
    """Return a public text and a private note of the same name."""
    public, private = r.choice(read_lines("adapter_names.txt")).split(" >> ")
    title, text, known = pieces.titled(r)
    given = {"name": title if public == "-" else generate(r, "name")}
    article = Told(text, known, []) if public == "-" else fact(r, public, given=given)
    return Joined([article, note(r, fact(r, private, given=given))], [])


_WORDS = (80, 128, 128)  # of a chunk
_SHARES = {"articles": 0.36, "bridge": 0.16, "link": 0.10, "named": 0.14, "tables": 0.12}
"""Of the samples; the rest are notes."""
_ALONE = 0.25  # of the samples have one document
_EARLIER = 0.25  # of the questions come after others of the same chat
_RIGHT, _OTHER = (0.62, 0.08), (0.42, 0.14)  # cosines of documents: mean, deviation
_OF_BRIDGE, _STRAY = (0.48, 0.14), (0.20, 0.10)  # the same of bridges and talks
_OF_NAME, _TOPICAL = (0.54, 0.12), (0.58, 0.12)  # and of texts about one name


def _read(
    r: Random,
    documents: Sequence[str],
    asked: Sequence[Asked],
    right: tuple[float, float] = _RIGHT,
    other: tuple[float, float] = _OTHER,
) -> Reading:
    """Return the documents in any order, and the questions with cosines that retrieval may give."""
    order = r.sample(range(len(documents)), len(documents))
    single = [turns[0] for turns, _ in asked if len(turns) == 1]
    branches = []
    for turns, needed in asked:
        earlier = [turn for turn in single if turn != turns[-1]]
        if len(turns) == 1 and earlier and r.random() < _EARLIER:
            turns = [*r.sample(earlier, min(len(earlier), r.choice([1, 1, 2, 3]))), *turns]
        scores = [round(r.gauss(*(right if i in needed else other)), 3) for i in order]
        branches.append(Branch(turns, scores))
    r.shuffle(branches)
    return Reading([documents[i] for i in order], branches)


def _mixed(
    r: Random,
    joined: Joined,
    pieces: Pieces,
    right: tuple[float, float] = _OF_BRIDGE,
    other: tuple[float, float] = _STRAY,
    most: int = 1,
) -> Reading:
    """Return documents with near misses, strays, and `most` of the questions that each answers."""
    documents, asked = [each.text for each in joined.documents], list(joined.asked)
    for number, each in enumerate(joined.documents):
        turns = r.sample(each.known, min(len(each.known), most))
        asked += [([turn], (number,)) for turn in turns]
    known = {question for each in joined.documents for question, _ in each.known}
    missing = [q for each in joined.documents for q in each.missing if q not in known]
    few = r.choice([2, 2, 3]) if most > 1 else r.choice([0, 1, 1, 1, 1])
    asked += [([(q, UNKNOWN)], ()) for q in r.sample(missing, min(len(missing), few))]
    for _ in range(r.choice([0, 0, 0, 0, 1, 2])):
        documents.append(pieces.any(r) if r.random() < 0.4 else note(r).text)
    return _read(r, documents, asked, right, other)


def drawn(found: Sequence[Article], n: int, seed: int) -> list[Reading]:
    """Mix articles with questions, notes, bridges and talks."""
    r = Random(seed)
    cut = {words: Pieces(found, r, words) for words in sorted(set(_WORDS))}
    readings: list[Reading] = []
    while len(readings) < n:
        pieces = cut[r.choice(_WORDS)]
        kind = r.choices([*_SHARES, "notes"], [*_SHARES.values(), 1 - sum(_SHARES.values())])[0]
        count = 1 if r.random() < _ALONE else r.choice([2, 2, 2, 3])
        if kind == "articles":
            made = _read(r, *pieces.several(r, count))
        elif kind == "bridge":
            made = _mixed(r, bridge(r), pieces)
        elif kind == "link":
            made = _mixed(r, link(r), pieces)
        elif kind == "named":
            made = _mixed(r, named(r, pieces), pieces, _OF_NAME, _TOPICAL, 2)
        else:
            told = table(r) if kind == "tables" else [note(r) for _ in range(count)]
            told = r.sample(told, min(len(told), count))
            most = 5 if len(told) == 1 else 3
            made = _mixed(r, Joined(told, []), pieces, _RIGHT, _OTHER, most)
        if made.branches:
            readings.append(made)
    return readings


def adapter_samples(
    out: Path,
    files: list[Path],
    /,
    *,
    n: Annotated[int, option("Samples.", default="4000", low=1)] = 4000,
    without: Annotated[
        Path | None, option("Evaluation file whose articles are left out.", kind="FILE")
    ] = None,
    seed: Annotated[int, option("All chance comes from it.", default="0", low=0)] = 0,
) -> None:
    """Write the samples of an adapter: documents of two sides, and questions about them.

    Args:
        out: the file.
        files: articles with questions, in the form of SQuAD's files.
    """
    lines = (made.line() + "\n" for made in drawn(articles(files, without), n, seed))
    out.write_text("".join(lines), encoding="utf-8")


def samples(samples: Path, out: Path) -> None:
    """Write documents with their questions as `verifier` reads them.

    Args:
        samples: what `adapter-samples` wrote.
        out: a directory, of one text for each document.
    """
    out.mkdir(parents=True, exist_ok=True)
    with samples.open(encoding="utf-8") as lines:
        alone = chain.from_iterable(Reading.read(line).apart() for line in lines)
        for number, reading in enumerate(alone):
            asked = [branch.turns[0] for branch in reading.branches if len(branch.turns) == 1]
            turns = "".join(f"Question: {q}\nAnswer: {a}\n" for q, a in asked)
            text = f"Document: {reading.documents[0]}\n\n{turns}"
            (out / f"{number:05d}.txt").write_text(text, encoding="utf-8")
