"""Documents put together from parts: who or what, an attribute, a value, a clause and a layout.

compositions.txt has the parts. One attribute is worded by its own clauses or by general ones, told
by somebody, listed, tabled, logged, spoken or written in a letter, so that the forms multiply.
What is asked and not there is a near miss: the same entity's other attribute, or the same attribute
of another entity. No clause has a form that is held out for evaluation.
"""

import re
from dataclasses import dataclass
from functools import cache
from random import Random

from .notes import is_held_out
from .sample import UNKNOWN, Asking, Sample, answering, asked, token_estimate
from .values import capitalized, draw, fill, form, generate, read_blocks, slots_of, word, word_set

_BLOCKS = "compositions.txt"
_LONGEST = 84  # words and punctuation marks of a document
_UNKNOWN_SHARE = 0.2
_PHRASES = frozenset(["loc", "reason"])  # values that are no noun phrases: own clauses only
_PRONOUNS = {"person": ("his", "her", "their"), "occasion": ("its",), "thing": ("its",)}


@dataclass(frozen=True, slots=True)
class _Attribute:
    name: str
    slot: str
    clauses: tuple[str, ...]
    questions: tuple[str, ...]

    @property
    def is_phrase(self) -> bool:
        return self.slot.rstrip("0123456789") in _PHRASES


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of entity: how it is named, and its attributes."""

    name: str
    subjects: tuple[str, ...]
    attributes: tuple[_Attribute, ...]


@dataclass(frozen=True, slots=True)
class _Told:
    """One value of one attribute of one entity."""

    kind: _Kind
    entity: str
    attribute: _Attribute
    value: str

    @property
    def slots(self) -> dict[str, str]:
        return {"x": self.entity, "a": self.attribute.name, "v": self.value}


def composition(r: Random, asking: Asking = None, turns: int | None = None) -> Sample:
    """A document of one to three entities or events, and questions about them."""
    while True:
        x = r.random()
        make = _events if x < 0.24 else _disagreement if x < 0.30 else _entities
        document, known, foreign = make(r)
        if token_estimate(document) > _LONGEST or not known:
            continue
        known = list(dict(known).items())
        r.shuffle(known)
        pairs: list[tuple[str, str]] = []
        for question, answer in known[: turns or r.choice([1, 2, 2, 3, 3, 4])]:
            missing = asking == "unknown" or (asking is None and r.random() < _UNKNOWN_SHARE)
            if missing and foreign:
                pairs.append((asked(r, r.choice(foreign)), UNKNOWN))
            elif asking != "unknown":
                pairs.append((asked(r, question), answer))
        if pairs:
            return answering(document, pairs)


Made = tuple[str, list[tuple[str, str]], list[str]]  # document, known pairs, foreign questions


@cache
def _parts() -> dict[str, list[str]]:
    return read_blocks(_BLOCKS)


@cache
def _kinds() -> tuple[_Kind, ...]:
    found = []
    for heading in ("person", "thing", "occasion", "house"):
        block = next(name for name in _parts() if name.startswith(heading + " "))
        attributes = []
        for line in _parts()[block]:
            described, clauses, questions = line.split(" || ")
            name, slot = described.split(" | ")
            attributes.append(
                _Attribute(name, slot, tuple(clauses.split(" ; ")), tuple(questions.split(" ; ")))
            )
        subjects = tuple(re.sub(r"^\w+ ", "", block, count=1).split(" ; "))
        found.append(_Kind(heading, subjects, tuple(attributes)))
    return tuple(found)


@cache
def _verbs() -> list[list[str]]:
    return [entry.split("/") for entry in " ".join(_parts()["verb"]).rstrip(" |").split(" | ")]


def _part(r: Random, block: str) -> str:
    return r.choice(_parts()[block])


def _named(r: Random, template: str) -> str:
    """A phrase with values for its slots; a bare slot's name stands for the slot."""
    template = template if "{" in template or " " in template else f"{{{template}}}"
    template = re.sub(r"^the (\w+)$", r"the {\1}", template)
    return fill(template, draw(r, slots_of(template)))


def _with_names(r: Random, template: str, values: dict[str, str]) -> str:
    """Fill a template of this module; {n} and whatever else it lacks is drawn."""
    missing = slots_of(template) - values.keys()
    drawn = {slot: generate(r, "first name" if slot == "n" else slot) for slot in sorted(missing)}
    return fill(template, values | drawn)


def _entities(r: Random) -> Made:
    kind = r.choice(_kinds())
    entities = list(
        dict.fromkeys(_named(r, r.choice(kind.subjects)) for _ in range(r.choice([1, 1, 2, 2, 3])))
    )
    number = r.choice([1, 2, 2, 3]) if len(entities) < 3 else r.choice([1, 1, 2])
    shared = r.sample(kind.attributes, min(number, len(kind.attributes)))
    told = []
    for entity in entities:
        attributes = shared if r.random() < 0.7 else r.sample(kind.attributes, number)
        told += [_Told(kind, entity, a, generate(r, a.slot)) for a in attributes]
    layout = r.choices([_prose, _letter, _records, _table, _dialogue, _log], [9, 3, 3, 2, 3, 2])[0]
    document = layout(r, told)
    values = [t.value for t in told]
    known = [_question(r, t) for t in told for _ in range(2)]
    known += [
        (f"Whose {t.attribute.name} is {t.value}?", t.entity)
        for t in told
        if kind.name == "person" and values.count(t.value) == 1 and r.random() < 0.15
    ]
    known = [pair for pair in known if pair[1].lower() in document.lower()]
    return document, known, _near_misses(r, told)


def _question(r: Random, told: _Told) -> tuple[str, str]:
    own = r.random() < 0.6 or told.attribute.is_phrase
    text = r.choice(told.attribute.questions) if own else _part(r, "generic question")
    if told.kind.name == "person" and not own and r.random() < 0.3:
        text = r.choice(["What is {x}'s {a}?", "{x}'s {a}?", "Do you know {x}'s {a}?"])
    template, _, answer = text.partition(" | ")
    return capitalized(fill(template, told.slots)), fill(answer or "{v}", told.slots)


def _near_misses(r: Random, told: list[_Told]) -> list[str]:
    kind = told[0].kind
    here = {(t.entity, t.attribute.name) for t in told}
    entities = sorted({t.entity for t in told})
    attributes = [t.attribute for t in told]
    text = " ".join(t.value for t in told) + " ".join(entities)
    candidates = [(r.choice(entities), r.choice(kind.attributes)) for _ in range(2)]
    other = _named(r, r.choice(kind.subjects))
    if other not in text and all(e not in other for e in entities):
        candidates += [(other, r.choice(attributes)) for _ in range(2)]
    candidates += [(r.choice(entities), r.choice(attributes))]
    slots = {a.slot for a in attributes}
    return [
        _question(r, _Told(kind, entity, attribute, ""))[0]
        for entity, attribute in candidates
        if (entity, attribute.name) not in here
        # "Where does X live?" may be answered by a value of the same sort.
        and (entity == other or attribute.slot not in slots)
        and not any("{v}" in q for q in attribute.questions)
    ]


def _clause(r: Random, told: _Told) -> str:
    """A clause that begins in lower case unless with a name."""
    while True:
        own = r.random() < 0.6 or told.attribute.is_phrase
        template = r.choice(told.attribute.clauses) if own else _part(r, "generic clause")
        clause = _with_names(r, template, told.slots | {"o": generate(r, told.attribute.slot)})
        if not is_held_out(capitalized(clause) + "."):
            return clause


def _sentence(r: Random, told: _Told) -> str:
    if r.random() < 0.12 and not told.attribute.is_phrase:
        return capitalized(fill(_part(r, "generic record"), told.slots))
    return _wrapped(r, _clause(r, told))


def _wrapped(r: Random, clause: str) -> str:
    return capitalized(_with_names(r, _part(r, "wrapper"), {"c": clause}))


def _sentences(r: Random, told: list[_Told]) -> list[str]:
    """Each entity in turn; what follows on it may say only 'her', 'its' or 'the'."""
    if r.random() < 0.3:
        r.shuffle(told)
    found: list[str] = []
    before = ""
    for t in told:
        follows = t.entity == before
        if not follows and r.random() < 0.15:
            found.append(_with_names(r, _part(r, "introduction"), {"x": t.entity}))
            follows = True
        if follows and r.random() < 0.6 and not t.attribute.is_phrase:
            pronoun = r.choice(_PRONOUNS.get(t.kind.name, ("its",)))
            found.append(capitalized(fill(_part(r, "following"), t.slots | {"pro": pronoun})))
        else:
            found.append(_sentence(r, t))
        before = t.entity
    return found


def _prose(r: Random, told: list[_Told]) -> str:
    found = _sentences(r, told)
    if r.random() < 0.35:
        found.insert(r.randint(0, len(found)), word(r, "filler"))
    return r.choice([" ", " ", " ", "\n"]).join(found)


def _letter(r: Random, told: list[_Told]) -> str:
    between = r.choice(["\n", " "])
    opening, closing = (_with_names(r, _part(r, b), {}) for b in ("opening", "closing"))
    return between.join([opening, " ".join(_sentences(r, told)), closing])


def _records(r: Random, told: list[_Told]) -> str:
    """`key: value` lines or one line to an entity."""
    mark, bullet = r.choice([": ", " - ", "=", ": "]), r.choice(["", "- ", "* ", ""])
    between = r.choice(["; ", ", ", " | ", "\n"])
    lines = []
    for entity in dict.fromkeys(t.entity for t in told):
        own = [t for t in told if t.entity == entity]
        fields = [f"{capitalized(t.attribute.name)}{mark}{t.value}" for t in own]
        head = capitalized(entity)
        lines.append(bullet + head + r.choice([": ", " - ", "\n"]) + between.join(fields))
    return "\n".join(lines)


def _table(r: Random, told: list[_Told]) -> str:
    mark = r.choice([" | ", ", ", "; ", "\t"])
    names = list(dict.fromkeys(t.attribute.name for t in told))
    values = {(t.entity, t.attribute.name): t.value for t in told}
    lines = [mark.join(["Name", *map(capitalized, names)])]
    for entity in dict.fromkeys(t.entity for t in told):
        lines.append(mark.join([entity, *(values.get((entity, name), "-") for name in names)]))
    return "\n".join(lines)


def _dialogue(r: Random, told: list[_Told]) -> str:
    one, two = (word(r, "first name") for _ in range(2))
    if r.random() < 0.2:
        one, two = "Q", "A"
    lines = []
    for t in told:
        question, answer = _question(r, t)
        if answer != t.value or r.random() < 0.35:
            lines.append(f"{two}: {_sentence(r, t)}")
        else:
            said = r.choice([t.value + ".", t.value, _clause(r, t) + ".", f"It is {t.value}."])
            lines += [f"{one}: {question}", f"{two}: {capitalized(said)}"]
    return r.choice(["\n", "\n", " "]).join(lines)


def _log(r: Random, told: list[_Told]) -> str:
    stamp = _part(r, "log time")
    return "\n".join(f"{_with_names(r, stamp, {})} {_sentence(r, t)}" for t in told)


def _disagreement(r: Random) -> Made:
    """Two sources that do not agree, asked about by source."""
    kind = r.choice(_kinds())
    entity = _named(r, r.choice(kind.subjects))
    attribute = r.choice([a for a in kind.attributes if not a.is_phrase])
    values = [generate(r, attribute.slot) for _ in range(2)]
    if values[0] == values[1]:
        return "", [], []
    dates = [generate(r, "date") for _ in range(2)]
    names = [word(r, "first name") for _ in range(3)]
    by_name = r.random() < 0.5
    sources = names if by_name else [f"the note of {d}" for d in dates]
    clauses = [_clause(r, _Told(kind, entity, attribute, v)) for v in values]
    if any(other in c for c, other in zip(clauses, reversed(values), strict=True)):
        return "", [], []
    says = r.choice(
        ["{s} says that {c}.", "{s}: {c}.", "According to {s}, {c}.", "{s} has it that {c}."]
    )
    document = " ".join(
        capitalized(fill(says, {"s": s, "c": c})) for s, c in zip(sources, clauses, strict=False)
    )
    known, foreign = [], []
    for source, answer in [*zip(sources, values, strict=False), (names[2], "")]:
        question, _ = _question(r, _Told(kind, entity, attribute, answer))
        opens = question.split()[0] in word_set("question opener")
        low = question[0].lower() + question[1:] if opens else question
        text = r.choice(
            [f"According to {source}, {low}", f"{question.rstrip('?.')} according to {source}?"]
        )
        if answer:
            known.append((capitalized(text), answer))
        elif by_name and source not in names[:2]:
            foreign.append(capitalized(text))
    return document, [k for k in known if sources[0] != sources[1]], foreign


_WHEN = (
    "{on {date}|on {weekday}|last week|at {time}|in {month}|in {year}|yesterday evening|"
    "early in the morning|two days ago|before lunch}"
)


def _events(r: Random) -> Made:
    """Somebody did something some time, somewhere, with somebody, for a reason; in any order."""
    sentences: list[str] = []
    known: list[tuple[str, str]] = []
    foreign: list[str] = []
    seen: set[str] = set()
    stamp = _part(r, "log time") if r.random() < 0.15 else ""
    for _ in range(r.choice([1, 1, 2, 2, 3])):
        past, base, participle, thing = r.choice(_verbs())
        who, what, companion = generate(r, "p"), _named(r, thing), generate(r, "p3")
        what = re.sub(r"^(a|an) ", "the ", what)
        if len({who, what, companion} | seen) < 3 + len(seen):
            continue
        seen |= {who, what, companion}
        roles = {
            "when": form(r, _WHEN),
            "where": form(r, "{{loc}|in {city}|at the {landmark}|in the {homeroom}|at {company}}"),
            "why": form(r, "because {reason}"),
            "with": f"with {companion}",
        }
        chances = {"when": 0.65, "where": 0.55, "why": 0.2, "with": 0.25}
        given = [role for role in roles if r.random() < chances[role]]
        if thing in ("the landmark", "p2", "company") and "where" in given:
            given.remove("where")
        slots = {"who": who, "what": what, "past": past, "base": base, "part": participle}
        sentences.append(_event_sentence(r, slots, [roles[role] for role in given]))
        if is_held_out(sentences[-1]):
            return "", [], []
        for role in ("who", "what", "when", "where", "why", "with"):
            question = capitalized(fill(_part(r, f"event question {role}"), slots))
            answers = {"who": who, "what": what, "with": companion} | {
                role: roles[role] for role in given if role in ("when", "where")
            }
            if role == "why":
                answers["why"] = roles["why"].removeprefix("because ")
            if role in ("who", "what") or role in given:
                known.append((question, answers[role]))
            elif role in ("why", "with") or role not in given:
                foreign.append(question)
        stranger = slots | {"who": generate(r, "p"), "what": _named(r, thing)}
        if stranger["who"] not in seen and stranger["what"] not in seen:
            foreign += [
                capitalized(fill(_part(r, "event question who"), stranger)),
                capitalized(fill(_part(r, "event question what"), stranger)),
            ]
    if stamp:
        return "\n".join(f"{_with_names(r, stamp, {})} {s}" for s in sentences), known, foreign
    if sentences and r.random() < 0.25:
        sentences.insert(r.randint(0, len(sentences)), word(r, "filler"))
    return r.choice([" ", " ", " ", "\n"]).join(sentences), known, foreign


def _event_sentence(r: Random, slots: dict[str, str], adverbials: list[str]) -> str:
    # A reason stands last, the others anywhere.
    loose = [a for a in adverbials if not a.startswith("because")]
    r.shuffle(loose)
    ordered = [*loose, *[a for a in adverbials if a.startswith("because")]]
    templates = [t for t in _parts()["event clause"] if loose or "{front}" not in t]
    slots = slots | {
        "rest": " ".join(ordered),
        "front": loose[0] if loose else "",
        "rest2": " ".join(ordered[1:]),
    }
    clause = re.sub(r"\s+", " ", fill(r.choice(templates), slots)).strip()
    clause = clause.replace(" ;", ";").replace(" ,", ",")
    return capitalized(clause) + "." if r.random() < 0.6 else _wrapped(r, clause)
