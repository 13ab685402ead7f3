"""Prompt lookup: drafts that no model computes, copied from the texts at hand (Saxena 2023)."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

LONGEST_MATCH = 4
"""Tokens that a match has at most; longer ones predict no better."""
LEAST_MATCH = 2
"""Tokens of a match whose continuation is read along."""
ROWS = 4
"""Rows that a product of SmolLM2 in 4 bits computes at the cost of one."""


class Lookup:
    """Finds what followed the newest tokens of an answer where they occurred before.

    The longest match counts; of several the newest in the answer, then the first in `texts`. A
    guess is read along by a model of so many `rows`, one for each document.
    """

    def __init__(self, texts: Iterable[Sequence[int]] = (), rows: int = 1) -> None:
        self._longest = ROWS // max(1, rows) - 1
        self._places: dict[int, list[tuple[Sequence[int], int]]] = {}
        for text in texts:
            for end, token in enumerate(text[:-1], start=1):
                self._places.setdefault(token, []).append((text, end))

    def find(self, tokens: Sequence[int]) -> tuple[int, Sequence[int]]:
        """Return the length of the match and all that follows it; (0, ()) without a match."""
        newest = tokens[-1] if tokens else None
        ends = range(len(tokens) - 1, 0, -1)
        places = [(tokens, end) for end in ends if tokens[end - 1] == newest]
        places += self._places.get(newest, ()) if newest is not None else ()
        matched = [_matched(text, end, tokens) for text, end in places]
        longest = max(matched, default=0)
        text, end = places[matched.index(longest)] if longest else ((), 0)
        return longest, text[end:]

    def guess(self, tokens: Sequence[int], room: int, stop_tokens: Sequence[int]) -> list[int]:
        """Return what to read along in the next forward: at most `room` tokens, and no stop.

        A forward over all rows and positions stays within ROWS.
        """
        matched, following = self.find(tokens)
        if matched < LEAST_MATCH:
            return []
        most = max(0, min(room, self._longest))
        return list(takewhile(lambda x: x not in stop_tokens, following[:most]))


def _matched(text: Sequence[int], end: int, tokens: Sequence[int]) -> int:
    """Return how many tokens before `end` are the last of `tokens`; one is known to be."""
    most = min(LONGEST_MATCH, end, len(tokens))
    return next((n for n in range(1, most) if text[end - 1 - n] != tokens[-1 - n]), most)
