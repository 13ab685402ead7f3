"""Find the rows that disagree with a value that an answer names (SPEC 5, Disagreement).

A row is one document, followed by the answer so far. Documents may hold different values for the
same thing, and a mixture token by token may give neither: "1,240" and "9,990" give "9,240". So a
row that gave the value's tokens so far a joint probability below e^-5 (LEAST) loses its weight in
the mixture until the value ends. This depends only on the text, so a rollback changes no draft.

A value begins with a digit or a capital letter, and is in one of three phases:

    NAME    capital letters, and letters attached to them, continue the value; a word ends it
    NUMBER  digits, what joins digits, and letters without a space before them continue the value
    GAP     up to GAP_WORDS words after a number, such as a month or a unit ("14 March 2021",
            "3 hours and 20 minutes"); further digits and capital letters continue the value

In a NUMBER a row without weight proposes no token, because it cannot know where the number ends. In
a NAME or a GAP it may propose words, but not the end of the answer. A line break, or a sign such as
`?!;`, ends a value. A row disagrees with a name only if it gave another token at least 0.5 (SURE).
"""

import math
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import RowLogits

LEAST = -5.0
"""The log-probability of a value so far below which a row does not agree with it."""
LOST = 40.0
"""Taken from the relevance of a row that lost. If all rows of both sides lost, nothing changes."""
SURE = 0.5
"""The probability of another token without which a row does not disagree with a name."""
GAP_WORDS = 3
NONE, NAME, NUMBER, GAP = range(4)
"""Phases; GAP + n is that after n words."""
_JOINTS = frozenset(" ,.:/-–'’&+#@_()%")


class Kind(Enum):
    """A class of token texts, such as DIGIT, to find where a number or name begins and ends."""

    DIGIT = auto()
    CAPITAL = auto()
    """A capital letter behind a space."""
    ATTACHED_CAPITAL = auto()
    ATTACHED = auto()
    """A small letter without a space: it goes on with a word."""
    JOINT = auto()
    WORD = auto()
    """Any other text."""
    BREAK = auto()
    """No text, as of a stop token, or punctuation that ends a value."""


_NAMING = {Kind.DIGIT, Kind.CAPITAL, Kind.ATTACHED_CAPITAL, Kind.ATTACHED}


def kind_of(text: str) -> Kind:
    """Return the Kind of a token with this text, such as DIGIT, CAPITAL, WORD or BREAK."""
    bare = text.strip(" ")
    if any(character.isdigit() for character in text):
        return Kind.DIGIT
    if bare[:1].isupper():
        return Kind.CAPITAL if text[0] == " " else Kind.ATTACHED_CAPITAL
    if text[:1].islower():
        return Kind.ATTACHED
    if text and _JOINTS.issuperset(text):
        return Kind.JOINT
    return Kind.WORD if any(character.isalnum() for character in bare) else Kind.BREAK


def phase_after(phase: int, kind: Kind) -> int:
    """Return the phase of a text from its `phase` before the last token, which is of `kind`.

    A phase says whether a text ends in a NAME, a NUMBER, n words after a number (GAP + n), or NONE.
    """
    match kind:
        case Kind.DIGIT:
            return NUMBER
        case Kind.WORD:
            words = max(phase, GAP) + 1 if phase >= NUMBER else NONE
            return words if words <= GAP + GAP_WORDS else NONE
        case Kind.BREAK:
            return NONE
        case Kind.CAPITAL if phase == NUMBER:
            return GAP
        case Kind.CAPITAL | Kind.ATTACHED_CAPITAL if phase == NONE:
            return NAME
    return phase


class ValueState(NamedTuple):
    """The number, date, code or name at a text's end, and which rows (documents) disagree with it.

    `phase` is NONE (no value), NAME, NUMBER, or GAP + n (n words follow a number). `given[i]` is
    the log-probability that row i gave to the value's tokens so far. Bit i of `lost` is 1 if row i
    disagrees with the value, because `given[i]` fell below -5 (LEAST).
    """

    phase: int = NONE
    lost: int = 0
    given: tuple[float, ...] = ()

    def rows(self, count: int) -> NDArray[np.bool_]:
        """Return a mask of a side's `count` rows, True for each that disagrees with the value."""
        return np.array([bool(self.lost >> row & 1) for row in range(count)])


BEFORE = ValueState()
"""That before a text, and outside of values."""


class Agreement:
    """Finds the documents (rows) that gave an answer's number or name a probability below e^-5."""

    def __init__(self, decode: Callable[[Sequence[int]], str], vocabulary: int) -> None:
        self._decode, self._vocabulary = decode, vocabulary
        self._kinds: dict[int, Kind] = {}

    def kind(self, token: int) -> Kind:
        if token not in self._kinds:
            self._kinds[token] = kind_of(self._decode([token]))
        return self._kinds[token]

    def after(self, before: ValueState, token: int) -> ValueState | None:
        """Return the ValueState of a text that had the state `before` and then got a `token`.

        None if the token belongs to a number or name: then call `state_with_rows`.
        """
        kind = self.kind(token)
        phase = phase_after(before.phase, kind)
        if phase == NONE:
            return BEFORE
        return before._replace(phase=phase) if kind is Kind.WORD else None

    def state_with_rows(self, before: ValueState, token: int, rows: RowLogits) -> ValueState:
        """Return the ValueState after `before` and a `token`, given the `rows` that predict it."""
        if (found := self.after(before, token)) is not None:
            return found
        phase = phase_after(before.phase, self.kind(token))
        gave = rows.log_probabilities(np.array([token]))[:, 0]
        if phase == NAME and gave.min() < math.log(1 - SURE):
            every = rows.log_probabilities(np.arange(self._vocabulary))
            gave = np.where(every.max(axis=1) >= math.log(SURE), gave, 0.0)
        given = before.given or (0.0,) * gave.size
        given = tuple(map(sum, zip(given, gave.tolist(), strict=True)))
        lost = sum(1 << row for row, each in enumerate(given) if each < LEAST)
        return ValueState(phase, before.lost | lost, given)

    def text(self, tokens: Sequence[int]) -> str:
        return self._decode(tokens).strip()

    def phase(self, tokens: Sequence[int], before: int = NONE) -> int:
        return reduce(phase_after, map(self.kind, tokens), before)

    def numbers(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Return (first, end) indices of each number, date or code in `tokens`, end excluded."""
        found: list[tuple[int, int]] = []
        first = phase = NONE
        for place, kind in enumerate(map(self.kind, tokens)):
            first, phase = first if phase else place, phase_after(phase, kind)
            if kind is Kind.DIGIT and (not found or found[-1][0] != first):
                found.append((first, place))
            if phase and found and found[-1][0] == first and kind in _NAMING:
                found[-1] = first, place + 1
        return found

    def are_words(self, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of `tokens`: True for each that begins a word in small letters."""
        free = (self.kind(token) is Kind.WORD for token in tokens.tolist())
        return np.fromiter(free, np.bool_, tokens.size)
