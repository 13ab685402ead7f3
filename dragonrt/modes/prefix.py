"""Hashes of an answer's prefixes (SPEC 1.3), and drafts by prompt lookup (Saxena 2023).

Sides compare hashes to see if they drafted behind the same tokens. Lookup copies earlier text.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import takewhile

LOW_BITS = 0xFFFFFFFF
"""The part of a text's hash that rides on drafts and blocks."""


def start_hash(seed: int) -> int:
    """Return the hash of an answer's empty prefix, from its `seed`; `extend_hash` continues it."""
    name = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8)
    return int.from_bytes(name.digest(), "little")


def extend_hash(prefix_hash: int, token: int) -> int:
    """Return the hash of a prefix with `token` appended, given the hash of the prefix."""
    text = prefix_hash.to_bytes(8, "little") + token.to_bytes(4, "little")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def extended(hashes: Sequence[int], tokens: Iterable[int]) -> list[int]:
    """Return the prefix hashes `hashes`, then the hash after each of `tokens` is appended."""
    longer = list(hashes)
    for token in tokens:
        longer.append(extend_hash(longer[-1], token))
    return longer


class TokenPrefix:
    """Tokens that can be appended and cut, with the hash of each of their prefixes.

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
        """Append a token, and to `hashes` the hash of the longer prefix."""
        self.tokens.append(token)
        self.hashes.append(extend_hash(self.hashes[-1], token))

    def cut(self, length: int) -> None:
        """Drop all tokens behind the first `length` tokens, with their hashes."""
        del self.tokens[length:]
        del self.hashes[length + 1 :]

    def replace_from(self, step: int, tokens: Sequence[int]) -> None:
        """Keep the first `step` tokens, drop the tokens behind them, and append `tokens`."""
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
    """Prompt lookup: drafts what followed an earlier occurrence of an answer's last tokens.

    It searches the answer itself and `texts`, the tokens of documents and question. The longest
    match wins, then the latest in the answer, then the first in `texts`. `rows` is how many
    documents a forward reads at once; with more of them, `guess` returns fewer tokens.
    """

    def __init__(self, texts: Iterable[Sequence[int]] = (), rows: int = 1) -> None:
        self._longest = ROWS // max(1, rows) - 1
        self._places: dict[int, list[tuple[Sequence[int], int]]] = {}
        for text in texts:
            for end, token in enumerate(text[:-1], start=1):
                self._places.setdefault(token, []).append((text, end))

    def find(self, tokens: Sequence[int]) -> tuple[int, Sequence[int]]:
        """Return the longest match for the end of `tokens`: its length, and all tokens after it.

        The length is at most LONGEST_MATCH tokens. Without a match the result is (0, ()).
        """
        newest = tokens[-1] if tokens else None
        ends = range(len(tokens) - 1, 0, -1)
        places = [(tokens, end) for end in ends if tokens[end - 1] == newest]
        places += self._places.get(newest, ()) if newest is not None else ()
        matched = [_matched(text, end, tokens) for text, end in places]
        longest = max(matched, default=0)
        text, end = places[matched.index(longest)] if longest else ((), 0)
        return longest, text[end:]

    def guess(self, tokens: Sequence[int], room: int, stop_tokens: Sequence[int]) -> list[int]:
        """Return up to `room` tokens to draft after `tokens`, or [] if no long match exists.

        A match needs LEAST_MATCH tokens. The drafts end before a stop token; a forward checks them.
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
