"""ROUGE: how much of a reference text a generated one has in common with it (Lin 2004)."""

import re
from collections import Counter


def rouge_n(candidate: str, reference: str, n: int) -> float:
    """ROUGE-n: the F1 score, in [0, 1], of the n-grams of words that both texts have.

    Words are runs of letters and digits in lower case. A text with fewer than n words scores 0.
    """
    ours, theirs = _ngrams(candidate, n), _ngrams(reference, n)
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0


def _ngrams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = re.findall(r"[^\W_]+", text.lower())
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))
