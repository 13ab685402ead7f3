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


def rouge_l(candidate: str, reference: str) -> float:
    """ROUGE-L: the F1 score, in [0, 1], of the longest common subsequence of words."""
    ours, theirs = _words(candidate), _words(reference)
    lengths = [0] * (len(theirs) + 1)  # of the subsequences with each beginning of the reference
    for word in ours:
        before = 0
        for place, other in enumerate(theirs, start=1):
            longest = before + 1 if word == other else max(lengths[place], lengths[place - 1])
            before, lengths[place] = lengths[place], longest
    return 2 * lengths[-1] / (len(ours) + len(theirs)) if lengths[-1] else 0.0


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _ngrams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = _words(text)
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))
