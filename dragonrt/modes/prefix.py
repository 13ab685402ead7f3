"""A text that is drafted along: the hash that says which text a draft is for, and prompt lookup.

The hash is that of SPEC 1.3. Lookup gives drafts that no model computes, copied from the texts at
hand (Saxena 2023).
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import takewhile

LOW_BITS = 0xFFFFFFFF
"""The part of a text's hash that rides on drafts and blocks."""


def start_hash(seed: int) -> int:
    """Return the prefix hash of an answer without tokens, for a question with this seed."""
    name = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8)
    return int.from_bytes(name.digest(), "little")


def extend_hash(prefix_hash: int, token: int) -> int:
    """Return the hash of a prefix with `token` behind it, given the hash of the prefix."""
    text = prefix_hash.to_bytes(8, "little") + token.to_bytes(4, "little")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def extended(hashes: Sequence[int], tokens: Iterable[int]) -> list[int]:
    """Return `hashes`, the prefix hashes of a text, continued by one for each of `tokens`."""
    longer = list(hashes)
    for token in tokens:
        longer.append(extend_hash(longer[-1], token))
    return longer


class TokenPrefix:
    """A text as tokens that are appended and cut, with the hash of each of its prefixes.

    `hashes[n]` is the hash of the first `n` tokens, so it always has one entry more than `tokens`.
    """

    def __init__(self, start: int, tokens: Iterable[int] = ()) -> None:
        self.tokens: list[int] = []
        self.hashes: list[int] = [start]
        for token in tokens:
            self.append(token)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def hash(self) -> int:
        return self.hashes[-1]

    def append(self, token: int) -> None:
        """Append a token, and the hash of the prefix that ends with it."""
        self.tokens.append(token)
        self.hashes.append(extend_hash(self.hashes[-1], token))

    def cut(self, length: int) -> None:
        """Keep only the first `length` tokens."""
        del self.tokens[length:]
        del self.hashes[length + 1 :]

    def replace_from(self, step: int, tokens: Sequence[int]) -> None:
        """Keep the first `step` tokens, and append `tokens`."""
        self.cut(step)
        for token in tokens:
            self.append(token)


LONGEST_MATCH = 4
"""Tokens that a match has at most; longer ones predict no better."""
LEAST_MATCH = 2
"""Tokens of a match whose continuation is read along."""
ROWS = 4
"""Rows that a product of SmolLM2 in 4 bits computes at the cost of one."""


class Lookup:
    """Finds what followed the newest tokens of an answer where they occurred before.

    The longest match counts; of several the newest in the answer, then the first in `texts`. `rows`
    is the number of documents that the model reads side by side: with more, guesses are shorter.
    """

    def __init__(self, texts: Iterable[Sequence[int]] = (), rows: int = 1) -> None:
        self._longest = ROWS // max(1, rows) - 1
        self._places: dict[int, list[tuple[Sequence[int], int]]] = {}
        for text in texts:
            for end, token in enumerate(text[:-1], start=1):
                self._places.setdefault(token, []).append((text, end))

    def find(self, tokens: Sequence[int]) -> tuple[int, Sequence[int]]:
        """Return (count of matching tokens, all tokens behind them); (0, ()) without a match."""
        newest = tokens[-1] if tokens else None
        ends = range(len(tokens) - 1, 0, -1)
        places = [(tokens, end) for end in ends if tokens[end - 1] == newest]
        places += self._places.get(newest, ()) if newest is not None else ()
        matched = [_matched(text, end, tokens) for text, end in places]
        longest = max(matched, default=0)
        text, end = places[matched.index(longest)] if longest else ((), 0)
        return longest, text[end:]

    def guess(self, tokens: Sequence[int], room: int, stop_tokens: Sequence[int]) -> list[int]:
        """Return at most `room` tokens that may follow `tokens`, for the next forward to read, too.

        None is a stop token. Rows times positions of that forward stay within ROWS.
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
