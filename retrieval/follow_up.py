"""What a question in a conversation is about, in one text that can be searched for.

"And when is it?" names nothing to look for; with the question before it, it does. A question that
names its subject stays alone, or the last subject would be found beside the new one.
"""

import re
from collections.abc import Sequence

from .chunking import words_of

_CONTINUING = re.compile(r"\s*(and|but|or|so|then|also|(what|how) about)\b", re.IGNORECASE)
_REFERRING = re.compile(
    r"\b(it|its|he|him|his|she|her|hers|they|them|their|theirs|this|these|those)\b",
    re.IGNORECASE,
)


def in_context(question: str, earlier: Sequence[str]) -> str:
    """The question, after as many of the `earlier` ones (oldest first) as it needs.

    It needs the one before it if it goes on from there ("and", "what about"), refers to something
    ("it", "she") or has no word of substance; and that one may need its own before it.
    """
    texts = [question]
    for before in reversed(earlier):
        if not _follows(texts[0]):
            break
        texts.insert(0, before)
    return " ".join(texts)


def _follows(question: str) -> bool:
    return bool(
        _CONTINUING.match(question) or _REFERRING.search(question) or len(words_of(question)) < 2
    )
