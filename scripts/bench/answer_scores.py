"""How well a text answers a question: SQuAD's measures, and whether it refuses to answer."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_MARKS = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """Return the text in lower case, without punctuation, articles and extra spaces (SQuAD 1.1)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def contains(text: str, answers: Sequence[str]) -> bool:
    """Return whether one of the answers, normalised, stands within the text, as whole words."""
    words = f" {normalised(text)} "
    return any(f" {known} " in words for each in answers if (known := normalised(each)))


def f1(text: str, answers: Sequence[str]) -> float:
    """Return the greatest F1 of the text's words over those of each answer, from 0 to 1.

    An answer without words, such as "The", is right if the text has none either (SQuAD 1.1).
    """
    return max(
        (_f1(normalised(text).split(), normalised(each).split()) for each in answers), default=0.0
    )


def refuses(text: str, refusal: str) -> bool:
    """Return whether the text begins with the model's refusal, such as "I don't know."."""
    return f"{normalised(text)} ".startswith(f"{normalised(refusal)} ")


def _f1(text: Sequence[str], answer: Sequence[str]) -> float:
    if not text or not answer:
        return float(text == answer)
    common = (Counter(text) & Counter(answer)).total()
    return 2 * common / (len(text) + len(answer))
