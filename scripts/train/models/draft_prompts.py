"""Requests as people chat, about passages of the corpus and about nothing given."""

import re
from random import Random

from .corpus import Corpus
from .values import read_blocks

_SHARES = {
    "summary": 0.14, "passage": 0.12, "reading": 0.14, "question": 0.11, "explain": 0.11,
    "write": 0.08, "play": 0.04, "advice": 0.04, "reason": 0.03, "count": 0.12, "code": 0.05,
    "translation": 0.06,
}  # fmt: skip
_GAP = re.compile(r"\{(\w+)\}")
_BLOCKS = read_blocks("draft_prompts.txt")
_LISTS = {
    name: [entry for line in lines for entry in line.split(" | ")]
    for name, lines in _BLOCKS.items()
    if not name.startswith("ask ")
}


def request(r: Random, corpus: Corpus) -> str:
    """Draw a user's message."""
    kind = r.choices(list(_SHARES), list(_SHARES.values()))[0]
    form = r.choice(_BLOCKS[f"ask {kind}"]).replace("\\n", "\n")
    passage = question = ""
    if kind in ("reading", "question"):
        article = r.choice(corpus.readings)
        read = r.choice(article)
        passage, question = read.paragraph, r.choice(read.questions)[0]
        other = r.choice(article).paragraph
    else:
        passage = running_text(r, corpus, r.choice([40, 60, 90, 130, 180, 250]))
        other = ""
    drawn = {"passage": passage, "question": question, "other": other or passage}

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return drawn.get(name) or _value(r, name)

    return _GAP.sub(fill, form)


def running_text(r: Random, corpus: Corpus, words: int) -> str:
    """Draw paragraphs that follow each other, of about so many words."""
    article = r.choice(r.choices(corpus.texts, corpus.weights)[0])
    start = r.randrange(len(article))
    text = ""
    for paragraph in article[start:]:
        text += ("\n" if text else "") + paragraph
        if len(text.split()) >= words:
            break
    return " ".join(text.split(" ")[: 2 * words]) or running_text(r, corpus, words)


def _value(r: Random, name: str) -> str:
    match name:
        case "a" | "b":
            return str(r.randint(6, 60))
        case "c" | "d":
            return str(r.randint(2, 9))
        case "percent":
            return str(5 * r.randint(2, 18))
        case "hundreds":
            return str(20 * r.randint(5, 40))
        case "friend" | "third":
            name = "name"
    return r.choice(_LISTS[name])
