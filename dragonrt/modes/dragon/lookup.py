"""Guessing what a model will copy: the continuation of the text so far in its documents.

Answers over retrieved documents repeat them. A guess costs one wider forward and is right or wrong
like any draft; what is sampled, and so the text, cannot depend on it (SPEC section 0).
"""

from collections.abc import Sequence

LONGEST = 4
"""Tokens guessed at most: a forward over five positions costs about two single ones."""

SMOOTHING = 0.3


class Lookup:
    """Continuations from the newest two tokens, or from one that stands only once in the texts.

    Guesses grow and shrink with their luck, a moving average of the share that came true.
    """

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self._texts = texts
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}
        self._singles: dict[int, tuple[int, int] | None] = {}
        self._luck = 0.5
        for number, text in enumerate(texts):
            for position, token in enumerate(text):
                place = (number, position + 1)
                self._singles[token] = None if token in self._singles else place
                if position:
                    self._pairs.setdefault((text[position - 1], token), place)

    def guess(self, tokens: Sequence[int], room: int) -> list[int]:
        """What may follow `tokens`: at most `room` tokens, often none."""
        place = self._pairs.get((tokens[-2], tokens[-1])) if len(tokens) > 1 else None
        if place is None and tokens:
            place = self._singles.get(tokens[-1])
        if place is None:
            return []
        number, position = place
        length = min(room, max(1, round(LONGEST * self._luck)))
        return list(self._texts[number][position : position + length])

    def learn(self, guessed: int, right: int) -> None:
        """Take in how many tokens of a guess came true."""
        if guessed:
            self._luck += SMOOTHING * (right / guessed - self._luck)
