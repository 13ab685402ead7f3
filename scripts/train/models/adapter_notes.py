"""Longer notes for an adapter's samples: diaries, mails, chats, contracts, tables.

Facts come from text/adapter_facts.txt. What a note's facts do not say is asked as a near miss; so
is what another fact of the file would say. A later turn may refer back to an earlier one.
"""

import re
from functools import cache, partial
from itertools import zip_longest
from random import Random

from .sample import UNKNOWN, Reading, Turn
from .values import capitalized, draw, fill, form, generate, read_lines, slots_of, word

Told = tuple[str, list[Turn], list[str]]  # text, known, questions that it does not answer


@cache
def _facts() -> list[Told]:
    found = []
    for line in read_lines("adapter_facts.txt"):
        statement, *asked = line.split(" || ")
        known = [(q, a) for q, _, a in (x.partition(" | ") for x in asked if x[0] != "!")]
        found.append((statement, known, [x[2:] for x in asked if x[0] == "!"]))
    return found


def _value(people: list[str], r: Random, slot: str) -> str:
    if slot.rstrip("0123456789") == "p" and people and r.random() < 0.5:
        return r.choice(people)
    return generate(r, slot)


def _told(r: Random, number: int, people: list[str]) -> Told:
    statement, known, missing = _facts()[number]
    slots = set().union(*(slots_of(t) for t in [statement, *missing]))
    values = draw(r, slots, partial(_value, people))
    turns = [(capitalized(fill(q, values)), fill(a, values)) for q, a in known]
    missing = [capitalized(fill(q, values)) for q in missing]
    return capitalized(fill(statement, values)), turns, missing


def noted(r: Random) -> Reading:
    """A note of four to nine facts in one of several forms, and questions about it."""
    make = r.choices([_texts, _table], [0.68, 0.32])[0]
    document, known, missing = make(r)
    if r.random() < 0.15:
        known = [(q, a) for q, a in known if not a.startswith(("No", "Yes"))] or known
    r.shuffle(known)
    r.shuffle(missing)
    turns = known[: r.choice([4, 5, 6, 7])]
    turns += [(q, UNKNOWN) for q in missing[: r.choice([1, 2, 2, 3])]]
    r.shuffle(turns)
    branches = [[t] for t in turns]
    if r.random() < 0.35 and (talk := _talk(r, known, missing)):
        branches = [talk, *branches[2:]]
    return Reading(document, branches)


def _talk(r: Random, known: list[Turn], missing: list[str]) -> list[Turn]:
    """Turns about one thing, which the later ones call 'it', 'he' or 'she'."""
    turns = [*known, *((q, UNKNOWN) for q in missing)]
    for first in r.sample(known, len(known)):
        for name in _names(first[0]):
            later = [t for t in turns if t != first and _is_about(t[0], name)]
            if later:
                person = r.choice([("he", "his"), ("she", "her")])
                return [first, *((_referring(q, name, person), a) for q, a in later[:2])]
    return []


def _names(question: str) -> list[str]:
    """What a question is about: 'the ...' or a name."""
    found = re.findall(
        r"\bthe [a-z]+(?: [a-z]+)?(?=\?| (?:to|with|cost|start|end|take)\b|'s)", question
    )
    return found + re.findall(r"(?<=[a-z] )[A-Z][a-z]+(?: [A-Z][a-z]+)*", question)


def _is_about(question: str, name: str) -> bool:
    """Whether a pronoun can stand for the name: it is a subject or has something."""
    named = re.escape(name)
    before = "(?:does|did|is|was|has|can|will)" if name[0].isupper() else "[a-z]+"
    return bool(re.search(rf"\b{before} {named}\b(?! [A-Z])|{named}'s", question))


def _referring(question: str, name: str, person: tuple[str, str]) -> str:
    subject, possessive = person if name[0].isupper() else ("it", "its")
    text = question.replace(name + "'s", possessive).replace(name, subject)
    return f"And {text[0].lower()}{text[1:]}" if not text.startswith("I ") else text


def _texts(r: Random) -> Told:
    numbers = r.sample(range(len(_facts())), 14)
    n = r.choice([2, 3, 3, 4, 4, 5, 6, 8])
    people = [generate(r, "p") for _ in range(3)]
    told = [_told(r, i, people) for i in numbers[:n]]
    other = [q for i in numbers[n:] for q, _ in _told(r, i, people)[1]]
    layout = r.choice([_plain, _plain, _diary, _diary, _mail, _chat, _numbered, _broken, _bullets])
    known = [turn for t in told for turn in t[1]]
    counts = [q for q, _ in known]
    known = [(q, a) for q, a in known if counts.count(q) == 1]
    missing = [q for t in told for q in t[2]]
    wrong = _wrong_slots(r, told, numbers, people)
    kinds = [missing, wrong, other]
    for kind in kinds:
        r.shuffle(kind)
    missing = [q for kind in zip_longest(*kinds) for q in kind if q and q not in counts]
    return layout(r, [t[0] for t in told]), known, missing


def _wrong_slots(r: Random, told: list[Told], numbers: list[int], people: list[str]) -> list[str]:
    """What the note says of another person or thing than the one asked about."""
    found = [q for t, i in zip(told, numbers, strict=False) for q, _ in _told(r, i, people)[1]]
    document = " ".join(t[0] for t in told)
    for text, known, _ in told:
        others = [name for name in people if name in document and name not in text]
        for question, _ in known:
            named = [name for name in people if name in question]
            if named and others:
                found.append(question.replace(named[0], r.choice(others)))
    return found


def _plain(r: Random, texts: list[str]) -> str:
    head = form(r, "{||Notes\n\n|{day of a month}\n|Reminders. |Things to remember\n}")
    if r.random() < 0.3:
        texts = [*texts, word(r, "filler")]
    return head + r.choice([" ", " ", "\n", "\n\n"]).join(texts)


def _diary(r: Random, texts: list[str]) -> str:
    month, day = word(r, "month"), r.randint(1, 20)
    heads = ["{w}, {d} {m}: ", "{d} {m}\n", "## {d} {m}\n\n", "{w} {d} {m}. ", "{m} {d}: "]
    heading = r.choice(heads)
    entries = []
    at = 0
    while at < len(texts):
        n = r.choice([1, 1, 2])
        head = heading.format(w=word(r, "weekday"), d=day, m=month)
        filler = " " + word(r, "filler") if r.random() < 0.4 else ""
        entries.append(head + " ".join(texts[at : at + n]) + filler)
        at, day = at + n, day + r.choice([1, 1, 2, 3])
    return r.choice(["\n", "\n\n"]).join(entries)


def _mail(r: Random, texts: list[str]) -> str:
    one, two = generate(r, "p"), word(r, "first name")
    subject = form(r, "{news|a few things|this week|{topic}|{event}}")
    head = f"From: {one}\nTo: {two}\nSubject: {subject}\n\n" if r.random() < 0.7 else ""
    hello = form(r, "{Hi {two},|Dear {two},|Hello all,|{two},}", {"two": two})
    close = r.choice(["Best", "Love", "See you", "Regards"])
    return f"{head}{hello}\n{' '.join(texts)}\n{close}, {one}"


def _chat(r: Random, texts: list[str]) -> str:
    names = [word(r, "first name") for _ in range(2)]
    hour, minute = r.randint(8, 20), r.randint(0, 30)
    lines = []
    for text in texts:
        if r.random() < 0.4:
            reply = form(r, "{ok|any news?|what else?|good to know|thanks!|and then?}")
            lines.append((names[0], reply))
        lines.append((names[1] if r.random() < 0.8 else names[0], text.rstrip(".")))
    shown = r.choice(["[{h}:{m:02d}] {n}: {t}", "{n}: {t}", "{h}:{m:02d} {n} - {t}"])
    made = []
    for name, text in lines:
        minute += r.randint(1, 3)
        made.append(shown.format(h=hour, m=minute, n=name, t=text))
    return "\n".join(made)


def _numbered(r: Random, texts: list[str]) -> str:
    start = r.randint(1, 9)
    mark = r.choice(["{n}. ", "§ {n} ", "({n}) ", "{n}) "])
    return "\n".join(mark.format(n=start + i) + t for i, t in enumerate(texts))


def _bullets(r: Random, texts: list[str]) -> str:
    mark = r.choice(["- ", "* ", "• "])
    return "\n".join(mark + t for t in texts)


def _broken(r: Random, texts: list[str]) -> str:
    """Lines cut as a PDF's text is, some words hyphenated at the end of a line."""
    width = r.randint(38, 64)
    text = _numbered(r, texts) if r.random() < 0.5 else " ".join(texts)
    lines, line = [], ""
    for piece in text.replace("\n", " \n ").split(" "):
        if piece == "\n":
            lines.append(line)
            line = ""
        elif len(line) + len(piece) > width and line:
            if re.fullmatch(r"[a-z]{7,}[.,;]?", piece) and r.random() < 0.25:
                cut = len(piece) // 2
                lines.append(f"{line} {piece[:cut]}-")
                line = piece[cut:]
            else:
                lines.append(line)
                line = piece
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


def _table(r: Random) -> Told:
    sort = r.choice(list(_columns()))
    columns = r.sample(_columns()[sort], r.choice([3, 3, 4, 5]))
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
    layout = r.choice(["md", "md", "csv", "csv", "tab", "; ", "lines"])
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
    title = form(r, "{||Overview\n\n|# List\n\n|As of {day of a month}\n}")
    return title + "\n".join(lines), known, missing


def joined(r: Random) -> list[Reading]:
    """Return two documents that answer a question only together: both, and each of them alone."""
    line = r.choice(read_lines("adapter_pairs.txt")).replace("{happened}", word(r, "happened"))
    given = {slot: word(r, slot) for slot in ("hobby", "cause", "med")}
    given |= {"thing1": word(r, "device")}
    given |= {"Hobby": capitalized(given["hobby"]), "Med": capitalized(given["med"])}
    slots = draw(r, slots_of(line), given=given)
    one, two, question, both, first, second = (fill(x, slots) for x in line.split(" || "))
    texts = [capitalized(one), capitalized(two)]
    others = [_told(r, i, []) for i in r.sample(range(len(_facts())), 3)]
    texts = [
        r.choice(["", f"{capitalized(word(r, 'thing'))}\n\n"])
        + " ".join(r.sample([t, other[0]], 2) if r.random() < 0.6 else [t])
        for t, other in zip(texts, others, strict=False)
    ]
    question = capitalized(question)
    more = [
        r.choice(others[2][1])[0],
        *[r.choice(t[1])[0] for t in others[:2] if t[0] not in "".join(texts)],
    ]
    missing: list[list[Turn]] = [[(more[0], UNKNOWN)]]
    found = [Reading("\n\n".join(r.sample(texts, 2)), [[(question, both)], *missing])]
    for text, answer in zip(texts, (first, second), strict=True):
        known = [[t] for o in others[:2] if o[0] in text for t in o[1][:2]]
        alone = (question, UNKNOWN if answer == "-" else answer)
        found.append(Reading(text, [[alone], *known, *missing]))
    return found
