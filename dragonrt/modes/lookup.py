"""Prompt lookup: drafts that no model computes, copied from the texts at hand (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from math import ceil, sqrt
from statistics import NormalDist

from dragonrt.sampling.noise import Noise, Purpose

LONGEST_MATCH = 4
"""Tokens that a match has at most; longer ones predict no better."""
LONGEST_GUESS = 4
"""Tokens read along at most."""
FORWARD_COST = 0.1
"""A forward of the draft model, in round trips: a constant, as texts may depend on it."""


class Lookup:
    """Finds what followed the newest tokens of an answer where they occurred before.

    The longest match counts; of several the newest in the answer, then the first in `texts`. A
    guess is read along by a model of so many `rows`, one for each document.
    """

    def __init__(self, texts: Iterable[Sequence[int]] = (), rows: int = 1) -> None:
        self._rows, self._known = max(1, rows), Bandit(0)
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
        """Return what to read along in the next forward: at most `room` tokens, and no stop."""
        matched, following = self.find(tokens)
        if not following:
            return []
        most = min(room, worthwhile(self._known.acceptance(matched), self._rows))
        return list(takewhile(lambda x: x not in stop_tokens, following[:most]))

    def learn(self, tokens: Sequence[int], token: int) -> None:
        """Take in which token followed `tokens`, guessed or not."""
        matched, following = self.find(tokens)
        if matched:
            self._known = self._known.after(matched, 1, following[0] == token)


def worthwhile(acceptance: float, rows: int) -> int:
    """Return how many guessed tokens give the most tokens per second; `acceptance` is of each.

    A forward over r documents times positions is taken to cost 2 + r + 3 ceil(r / 4), as that of
    SmolLM2 in 4 bits does: its products work on four rows at once.
    """
    sizes = [rows * each for each in range(1, 2 + LONGEST_GUESS)]
    tokens = accumulate(acceptance**each for each in range(len(sizes)))
    rates = [n / (2 + size + 3 * ceil(size / 4)) for n, size in zip(tokens, sizes, strict=True)]
    return rates.index(max(rates))


def _matched(text: Sequence[int], end: int, tokens: Sequence[int]) -> int:
    """Return how many tokens before `end` are the last of `tokens`; one is known to be."""
    most = min(LONGEST_MATCH, end, len(tokens))
    return next((n for n in range(1, most) if text[end - 1 - n] != tokens[-1 - n]), most)


@dataclass(frozen=True, slots=True)
class Bandit:
    """Chooses between a looked-up block and one of the model: Thompson sampling, keyed noise.

    `accepted` and `rejected` count tokens of the model's blocks, then of those behind matches of 1,
    2 … tokens, with what is assumed before the first. The posterior is taken as a normal one.
    """

    seed: int
    accepted: tuple[float, ...] = (3.0, 1.6, 2.4, 2.4, 3.2)
    rejected: tuple[float, ...] = (1.0, 2.4, 1.6, 1.6, 0.8)

    def prefers(self, step: int, matched: int, found: int, longest: int) -> bool:
        """Return whether `found` tokens behind a match promise more a second than the model's."""
        looked_up = self._tokens(step, matched, found) * (1 + FORWARD_COST * longest)
        return looked_up > self._tokens(step, 0, longest)

    def _tokens(self, step: int, source: int, length: int) -> float:
        """The expected tokens of a block of this length, at a sampled acceptance."""
        count, key = self.accepted[source] + self.rejected[source], step * len(self.accepted)
        mean = self.acceptance(source)
        u = Noise(self.seed).uniform(Purpose.SOURCE, "device", key + source)
        law = NormalDist(mean, sqrt(mean * (1 - mean) / (count + 1)))
        acceptance = min(1.0, max(0.0, law.inv_cdf(max(u, 2**-53))))
        return sum(acceptance**each for each in range(length + 1))

    def acceptance(self, matched: int) -> float:
        """Return the mean acceptance behind a match of so many tokens."""
        return self.accepted[matched] / (self.accepted[matched] + self.rejected[matched])

    def after(self, matched: int, drafted: int, accepted: int) -> Bandit:
        """Return the bandit behind a block, whose tokens count up to the first rejected one.

        `matched` is the length of its match, 0 if the model drafted it.
        """
        counts = list(self.accepted), list(self.rejected)
        counts[0][matched] += accepted
        counts[1][matched] += drafted - accepted
        return replace(self, accepted=tuple(counts[0]), rejected=tuple(counts[1]))
