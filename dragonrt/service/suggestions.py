"""Questions that documents answer, made from their sentences by patterns. Pure; reads English.

A sentence that states one fact is turned around: "The exam is on 8 June." answers "When is the
exam?". A sentence with a pronoun as its subject needs its context, and makes none.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

MOST = 3
_LONGEST = 70
"""Characters of a question; a longer one is hard to read at a glance."""

_NAME = r"(?!(?:I|It|He|She|We|They|You|There|This|That)\b)[A-Z][\w’-]+(?: [A-Z][\w’-]+){0,2}"
_WORD = r"(?!(?:is|are|was|were|has|have|had|can|must|who|which|that|and(?! [A-Z]))\b)[\w’'-]+"
_THING = rf"(?P<thing>(?:(?:The|My|Our|A|An) [a-z][\w’-]*|{_NAME}['’]s \w+)(?: {_WORD}){{0,7}}?)"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
)
_WHEN = (
    rf"(?:(?:on|from|until|since|in) (?:\d{{4}}\b|(?:\d{{1,2}} )?{_MONTH}"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)"
    r"|(?:at|from|until) \d{1,2}(?::\d\d| ?[ap]m| o'clock))"
)
_WHERE = r"(?:in|behind|under|next to|beside|near|inside|opposite) (?:the|my|our|a)\b"
_VALUE = r"(?:code|deposit|distance|fee|fine|limit|number|password|price|reading|rent|temperature)"
_FACTS = [
    (re.compile(pattern), question)
    for pattern, question in (
        (rf"{_THING} (?P<verb>is|are|was) {_WHEN}", "When {verb} {thing}?"),
        (
            rf"{_THING} (?P<verb>is|was) (?P<done>born|bought|built|closed|due|founded|opened|sold)"
            rf" {_WHEN}",
            "When {verb} {thing} {done}?",
        ),
        (
            rf"{_THING} (?P<verb>open|close|leave|start|begin|end|arrive|expire|depart)s"
            rf"(?: \w+){{0,3}}? {_WHEN}",
            "When does {thing} {verb}?",
        ),
        (rf"{_THING} (?P<verb>is|are) {_WHERE}", "Where {verb} {thing}?"),
        (rf"{_THING} costs \d", "How much does {thing} cost?"),
        (rf"{_THING} is called [A-Z]", "What is {thing} called?"),
        (
            rf"(?P<thing>{_NAME}) is (?P<rest>allergic to|afraid of|fond of) \w",
            "What is {thing} {rest}?",
        ),
        (rf"(?P<thing>{_NAME}) lives \w", "Where does {thing} live?"),
        (rf"(?P<thing>{_NAME}) promised to \w", "What did {thing} promise to do?"),
        (rf"(?=[^.]*\b{_VALUE}\b){_THING} (?P<verb>is|was) [A-Z]*-?\d", "What {verb} {thing}?"),
    )
]
_ARTICLE = re.compile(r"(?:The|My|Our|An?) ")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")


def suggested(texts: Iterable[str], most: int = MOST) -> list[str]:
    """Return up to `most` questions that the texts answer, of as many kinds as there are."""
    kinds: dict[str, list[str]] = {}
    for text in texts:
        question = next(_questions(text), None)
        if question is not None:
            kinds.setdefault(question.split()[0], []).append(question)
    mixed = (each for row in zip_longest(*kinds.values()) for each in row if each)
    return list(dict.fromkeys(mixed))[:most]


def _questions(text: str) -> Iterator[str]:
    """Yield the questions that the sentences of a text answer."""
    for sentence in _SENTENCE.split(text):
        for pattern, form in _FACTS:
            fact = pattern.match(sentence.strip())
            if fact is not None:
                words = fact.groupdict()
                thing = words.pop("thing")
                if _ARTICLE.match(thing):
                    thing = thing[0].lower() + thing[1:]
                question = form.format(thing=thing, **words)
                if len(question) <= _LONGEST:
                    yield question
                break
