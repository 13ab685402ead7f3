"""Longer notes for an adapter's samples: diaries, mails, chats, contracts, tables.

Facts come from text/adapter_facts.txt. What a note's facts do not say is asked as a near miss; so
is what another fact of the file would say. A later turn may refer back to an earlier one.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from random import Random

from .sample import UNKNOWN
from .slots import capitalized, fill, generate, slots_of
from .values import invented, word

Turn = tuple[str, str]
Told = tuple[str, list[Turn], list[str]]  # text, known, questions that it does not answer
Noted = tuple[str, list[list[Turn]]]  # document, branches

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _clock(r: Random) -> str:
    return f"{r.randint(6, 22)}:{r.choice(['00', '15', '30', '45', '05', '20', '40', '50'])}"


def _when(r: Random) -> str:
    day = r.choice([r.choice(_WEEKDAYS), generate(r, "date"), f"{r.choice(_WEEKDAYS)}, {_day(r)}"])
    at = _clock(r) if r.random() < 0.7 else generate(r, "time")
    return f"{day} at {at}" if r.random() < 0.85 else f"{day}, {at}"


def _day(r: Random) -> str:
    return f"{r.randint(1, 28)} {word(r, 'month')}"


def _letters(r: Random, n: int) -> str:
    return "".join(r.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(n))


def _digits(r: Random, n: int) -> str:
    return "".join(str(r.randrange(10)) for _ in range(n))


def _tag(r: Random) -> str:
    """A code of parts, all of which belong to it."""
    return r.choice(
        [
            f"{_letters(r, 2)}-{_digits(r, 5)}-{_letters(r, 1)}",
            f"{_letters(r, 1)}{_digits(r, 2)}-{_digits(r, 4)}",
            f"{_digits(r, 4)}-{_letters(r, 1)}",
            f"{_letters(r, 3)}/{_digits(r, 4)}/{_digits(r, 2)}",
            f"{_letters(r, 2)} {_digits(r, 3)} {_digits(r, 3)}",
            f"{_letters(r, 3)}{_digits(r, 6)}",
            f"{_digits(r, 3)}.{_digits(r, 3)}.{_digits(r, 2)}",
            f"{_letters(r, 1)}-{_digits(r, 4)}",
        ]
    )


def _pass(r: Random) -> str:
    parts = [word(r, "color"), word(r, "animal"), word(r, "material"), invented(r).lower()]
    words = [p.split()[-1].lower() for p in r.sample(parts, 2)]
    return r.choice(["-", "-", "_", "."]).join([*words, _digits(r, 2)])


def _amount(r: Random) -> str:
    n = r.choice([r.randint(3, 99), r.randint(100, 999), r.randint(11, 89) * 100])
    number = f"{n:,}" + (f".{r.randint(5, 99):02d}" if r.random() < 0.3 else "")
    return r.choice(
        [f"{number} euros", f"EUR {number}", f"${number}", f"£{number}", f"{number} EUR"]
    )


def _iban(r: Random) -> str:
    return f"{_letters(r, 2)}{_digits(r, 2)} " + " ".join(_digits(r, 4) for _ in range(3))


_OWN: dict[str, Callable[[Random], str]] = {
    "clock": _clock, "when": _when, "tag": _tag, "pass": _pass, "amount": _amount, "iban": _iban,
}  # fmt: skip


def _lines(name: str) -> list[str]:
    """A file's lines but for comments."""
    text = (Path(__file__).parent / "text" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@lru_cache(maxsize=1)
def _facts() -> list[tuple[str, list[Turn], list[str]]]:
    found = []
    for line in _lines("adapter_facts.txt"):
        statement, *asked = line.split(" || ")
        known = [(q, a) for q, _, a in (x.partition(" | ") for x in asked if x[0] != "!")]
        found.append((statement, known, [x[2:] for x in asked if x[0] == "!"]))
    return found


def _value(r: Random, slot: str, people: list[str]) -> str:
    name = slot.rstrip("0123456789")
    if name == "p" and people and r.random() < 0.5:
        return r.choice(people)
    return _OWN[name](r) if name in _OWN and slot != "num3" else generate(r, slot)


def _told(r: Random, number: int, people: list[str]) -> Told:
    statement, known, missing = _facts()[number]
    slots = set().union(*(slots_of(t) for t in [statement, *missing]))
    values: dict[str, str] = {}
    for slot in sorted(slots):
        for _ in range(8):
            values[slot] = _value(r, slot, people)
            if list(values.values()).count(values[slot]) == 1:
                break
    text = capitalized(fill(statement, values))
    turns = [(capitalized(fill(q, values)), fill(a, values)) for q, a in known]
    return text, turns, [capitalized(fill(q, values)) for q in missing]


def noted(r: Random) -> Noted:
    """A note of four to nine facts in one of several forms, and questions about it."""
    form = r.choices([_texts, _table], [0.68, 0.32])[0]
    document, known, missing = form(r)
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
    return document, branches


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
    head = r.choice(["", "", "Notes\n\n", f"{_day(r)}\n", "Reminders. ", "Things to remember\n"])
    if r.random() < 0.3:
        texts = [*texts, word(r, "filler")]
    return head + r.choice([" ", " ", "\n", "\n\n"]).join(texts)


def _diary(r: Random, texts: list[str]) -> str:
    month, day = word(r, "month"), r.randint(1, 20)
    form = r.choice(["{w}, {d} {m}: ", "{d} {m}\n", "## {d} {m}\n\n", "{w} {d} {m}. ", "{m} {d}: "])
    entries = []
    at = 0
    while at < len(texts):
        n = r.choice([1, 1, 2])
        head = form.format(w=r.choice(_WEEKDAYS), d=day, m=month)
        filler = " " + word(r, "filler") if r.random() < 0.4 else ""
        entries.append(head + " ".join(texts[at : at + n]) + filler)
        at, day = at + n, day + r.choice([1, 1, 2, 3])
    return r.choice(["\n", "\n\n"]).join(entries)


def _mail(r: Random, texts: list[str]) -> str:
    one, two = generate(r, "p"), word(r, "first name")
    subject = r.choice(["news", "a few things", "this week", word(r, "topic"), word(r, "event")])
    head = f"From: {one}\nTo: {two}\nSubject: {subject}\n\n" if r.random() < 0.7 else ""
    hello = r.choice([f"Hi {two},", f"Dear {two},", "Hello all,", f"{two},"])
    close = r.choice(["Best", "Love", "See you", "Regards"])
    return f"{head}{hello}\n{' '.join(texts)}\n{close}, {one}"


def _chat(r: Random, texts: list[str]) -> str:
    names = [word(r, "first name") for _ in range(2)]
    hour, minute = r.randint(8, 20), r.randint(0, 30)
    lines = []
    for text in texts:
        if r.random() < 0.4:
            said = r.choice(
                ["ok", "any news?", "what else?", "good to know", "thanks!", "and then?"]
            )
            lines.append((names[0], said))
        lines.append((names[1] if r.random() < 0.8 else names[0], text.rstrip(".")))
    form = r.choice(["[{h}:{m:02d}] {n}: {t}", "{n}: {t}", "{h}:{m:02d} {n} - {t}"])
    made = []
    for name, text in lines:
        minute += r.randint(1, 3)
        made.append(form.format(h=hour, m=minute, n=name, t=text))
    return "\n".join(made)


def _numbered(r: Random, texts: list[str]) -> str:
    start = r.randint(1, 9)
    form = r.choice(["{n}. ", "§ {n} ", "({n}) ", "{n}) "])
    return "\n".join(form.format(n=start + i) + t for i, t in enumerate(texts))


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
    head = r.choice(["", "", f"Page {r.randint(1, 9)} of {r.randint(9, 20)}\n", "AGREEMENT\n"])
    return head + "\n".join([*lines, line])


@lru_cache(maxsize=1)
def _columns() -> dict[str, list[list[str]]]:
    """Of what the rows of a table are: columns as (header, slot, question)."""
    found = {}
    for line in _lines("adapter_tables.txt"):
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
        cells = [_value(r, c[1], []) for c in shown]
        rows.append([name, *cells])
        known += [(c[2].format(x=name), cell) for c, cell in zip(shown, cells, strict=True)]
        unique = [c for c in cells if all(c not in row for row in rows[:-1])]
        if unique and sort == "p" and r.random() < 0.3:
            at = cells.index(unique[0])
            known.append((f"Who has {unique[0]} as {shown[at][0].lower()}?", name))
    missing = [c[2].format(x=name) for name in names for c in hidden]
    missing += [c[2].format(x=name) for name in absent for c in shown]
    form = r.choice(["md", "md", "csv", "csv", "tab", "; ", "lines"])
    if form == "md":
        lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
        lines.insert(1, "|" + "---|" * len(header))
    elif form == "lines":
        lines = [
            row[0]
            + ": "
            + ", ".join(f"{h.lower()} {c}" for h, c in zip(header[1:], row[1:], strict=True))
            for row in rows
        ]
    else:
        mark = {"csv": ",", "tab": "\t"}.get(form, form)
        lines = [mark.join(f'"{c}"' if mark in c else c for c in row) for row in [header, *rows]]
    title = r.choice(["", "", "Overview\n\n", "# List\n\n", f"As of {_day(r)}\n"])
    return title + "\n".join(lines), known, missing


_HOBBIES = (
    "swimming",
    "fencing",
    "judo",
    "pottery",
    "Spanish",
    "yoga",
    "chess",
    "drawing",
    "sewing",
)
_CAUSES = ("ramp", "tunnel", "main road", "ring road", "power station", "lift", "harbour", "pass")
_HAPPENED = (
    "was closed for {duration}", "was under water", "was blocked by a {vehicle}",
    "was being repaired", "broke down at {clock}", "had no power for {duration}",
)  # fmt: skip


def joined(r: Random) -> list[Noted]:
    """Two documents that only together answer a question: both, and each of them alone."""
    line = r.choice(_lines("adapter_pairs.txt")).replace("{happened}", r.choice(_HAPPENED))
    slots = {"hobby": r.choice(_HOBBIES), "cause": r.choice(_CAUSES), "med": word(r, "med")}
    slots |= {"thing1": r.choice(("bus", "van", "tractor", "boat", "printer", "heating", "oven"))}
    slots |= {"Hobby": capitalized(slots["hobby"]), "Med": capitalized(slots["med"])}
    for slot in sorted(slots_of(line) - slots.keys()):
        for _ in range(8):
            slots[slot] = _value(r, slot, [])
            if list(slots.values()).count(slots[slot]) == 1:
                break
    one, two, question, both, first, second = (fill(x, slots) for x in line.split(" || "))
    texts = [capitalized(one), capitalized(two)]
    others = [_told(r, i, []) for i in r.sample(range(len(_facts())), 3)]
    texts = [
        r.choice(["", f"{capitalized(word(r, 'thing'))}\n\n"])
        + " ".join(r.sample([t, other[0]], 2) if r.random() < 0.6 else [t])
        for t, other in zip(texts, others, strict=False)
    ]
    asked: Turn = (capitalized(question), both)
    more = [
        r.choice(others[2][1])[0],
        *[r.choice(t[1])[0] for t in others[:2] if t[0] not in "".join(texts)],
    ]
    missing: list[list[Turn]] = [[(q, UNKNOWN)] for q in more[:1]]
    found: list[Noted] = [("\n\n".join(r.sample(texts, 2)), [[asked], *missing])]
    for text, answer in zip(texts, (first, second), strict=True):
        known = [[t] for o in others[:2] if o[0] in text for t in o[1][:2]]
        answer = UNKNOWN if answer == "-" else answer
        found.append((text, [[(asked[0], answer)], *known, *missing]))
    return found
