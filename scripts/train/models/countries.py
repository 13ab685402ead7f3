"""Public facts: sentences about countries, real and made up, with true and exchanged values."""

import re
import zlib
from random import Random

from .corpus import Corpus, Country
from .sample import UNKNOWN, Asking, Fact, Sample, answering, asked, token_estimate
from .values import capitalized, invented, read_blocks

_LONGEST = 66  # words and punctuation marks of one document
_UNKNOWN_SHARE = 0.14


_FIELDS = {
    name: tuple([line[3:] for line in lines if line.startswith(mark)] for mark in ("S: ", "Q: "))
    for name, lines in read_blocks("country_facts.txt").items()
}
"""Statements and questions of each field."""


def _statements(field: str, held_out: bool) -> list[str]:
    every = _FIELDS[field][0]
    held = [s for s in every if len(every) > 1 and zlib.crc32(s.encode()) % 6 == 0]
    return held if held_out else [s for s in every if s not in held]


# The same relation in other sentence shapes: name of the field, "is" or "are", value.
_SHAPES = (
    "In {c}, the %s %s {v}.",
    "{c}'s %s %s {v}.",
    "{c}: %s %s {v}.",
    "As for {c}, its %s %s {v}.",
    "For {c} the %s %s {v}.",
)
_INVERSE_SHAPES = ("{v} %s the %s of {c}.", "{v} %s {c}'s %s.")


def country_facts(
    r: Random,
    corpus: Corpus,
    held_out: bool = False,
    asking: Asking = None,
    turns: int | None = None,
) -> Sample:
    """Two to five facts, most of one country, and questions about them.

    With `held_out` the first sentence has a form that training never sees.
    """
    while True:
        country = r.choice(corpus.countries)
        name = str(country["country"]) if r.random() < 0.85 else invented(r)
        facts = _facts(r, corpus, country, name, held_out)
        if not facts:
            continue
        n = min(len(facts), turns or r.choice([1, 2, 3, 3]))
        about = [facts[0]] if asking == "answer" else r.sample(facts, n)
        pairs = []
        for fact in about:
            if asking == "unknown" or (not asking and r.random() < _UNKNOWN_SHARE):
                question = _foreign_question(r, corpus, name, facts)
                if question:
                    pairs.append((asked(r, question), UNKNOWN))
            else:
                question, answer = fact.questions[0]
                pairs.append((asked(r, question), answer))
        if pairs:
            if r.random() < 0.5:
                r.shuffle(facts)
            return answering(" ".join(fact.text for fact in facts), pairs)


def _facts(r: Random, corpus: Corpus, country: Country, name: str, held_out: bool) -> list[Fact]:
    facts: list[Fact] = []
    unused = set(_FIELDS)
    for i in range(r.choice([2, 3, 3, 4, 5])):
        about, called = country, name
        if i > 0 and r.random() < 0.25:
            about = r.choice(corpus.countries)
            called = str(about["country"])
        fact = _fact(r, corpus, about, called, unused, held_out and i == 0)
        if fact is None:
            if i == 0:
                return []
            continue
        text = " ".join(f.text for f in facts)
        if token_estimate(text) + token_estimate(fact.text) > _LONGEST:
            break
        if any(f.questions[0][0] == fact.questions[0][0] or f.kind == fact.kind for f in facts):
            continue
        if called == name:
            unused.discard(fact.kind.split(" of ")[0])
        facts.append(fact)
    return facts


def _fact(
    r: Random, corpus: Corpus, country: Country, name: str, fields: set[str], held_out: bool
) -> Fact | None:
    keys = [k for k in sorted(fields) if k in country]
    if held_out:
        keys = [k for k in keys if _statements(k, True)]
    if not keys:
        return None
    key = r.choice(keys)
    source = country
    if r.random() >= 0.6:  # values of other countries force the model to read
        others = r.sample(corpus.countries, min(12, len(corpus.countries)))
        source = r.choice([c for c in others if key in c] or [country])
    value = _value(r, key, source, name)
    if not value:
        return None
    statement = r.choice(_statements(key, held_out) or _FIELDS[key][0])
    question = r.choice(_FIELDS[key][1])
    if not held_out and r.random() < 0.5:
        statement = _reshaped(r, key, statement)
    takes_article = key in ("symbol", "river") or (key == "currency" and "the {v}" in statement)
    answer = "the " + value if takes_article else value
    return Fact(
        f"{key} of {name}", _put(statement, name, value), ((_put(question, name, value), answer),)
    )


def _value(r: Random, key: str, source: Country, name: str) -> str:
    value = source[key]
    if isinstance(value, list):
        neighbors = [n for n in value if n != name][: r.randint(1, 5)]
        value = " and ".join(
            [", ".join(neighbors[:-1]), *neighbors[-1:]] if neighbors[1:] else neighbors
        )
    if key == "capital" and r.random() < 0.2:
        value = invented(r)
    if key in ("gov", "terrain", "climate"):
        value = value[:1].lower() + value[1:]
    return value.replace(" ,", ",")


def _reshaped(r: Random, field: str, statement: str) -> str:
    match = re.match(r"^The (.+?) (of|in) \{c\} (is|are) \{v\}\.$", statement)
    if not match:
        return statement
    relation, verb = match[1], match[3]
    inverse_is_held_out = any(s.startswith("{v}") for s in _statements(field, True))
    if inverse_is_held_out or r.random() < 0.6:
        return r.choice(_SHAPES) % (relation, verb)
    return r.choice(_INVERSE_SHAPES) % (verb, relation)


def _put(template: str, name: str, value: str) -> str:
    text = template.replace("{c}", name).replace("{v}", value)
    return capitalized(re.sub(r"\ba ([aeiou])", r"an \1", text))


def _foreign_question(r: Random, corpus: Corpus, name: str, facts: list[Fact]) -> str:
    """A question about a field that the document does not have; empty if it happens to have it."""
    key = r.choice(list(_FIELDS))
    called = name if r.random() < 0.5 else str(r.choice(corpus.countries)["country"])
    if any(fact.kind == f"{key} of {called}" for fact in facts):
        return ""
    return r.choice(_FIELDS[key][1]).replace("{c}", called)
