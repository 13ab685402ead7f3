"""A text that is drafted along, and the hash that says which text a draft is for (SPEC 1.3)."""

import hashlib
from collections.abc import Iterable, Sequence

LOW_BITS = 0xFFFFFFFF
"""The part of a text's hash that rides on drafts and blocks."""


def start_hash(seed: int) -> int:
    """Return the prefix hash of the empty answer of a question with this seed."""
    return _hash(seed.to_bytes(8, "little"))


def extend_hash(prefix_hash: int, token: int) -> int:
    """Return the prefix hash after one more token."""
    return _hash(prefix_hash.to_bytes(8, "little") + token.to_bytes(4, "little"))


def extended(hashes: Sequence[int], tokens: Iterable[int]) -> list[int]:
    """Return the prefix hashes of a text after more tokens."""
    longer = list(hashes)
    for token in tokens:
        longer.append(extend_hash(longer[-1], token))
    return longer


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class TokenPrefix:
    """The tokens a side drafts along, with the prefix hash before every one of them.

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
        """The hash of all tokens."""
        return self.hashes[-1]

    def append(self, token: int) -> None:
        """Append a token, and the hash of the prefix that ends with it."""
        self.tokens.append(token)
        self.hashes.append(extend_hash(self.hashes[-1], token))

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
        del self.tokens[length:]
        del self.hashes[length + 1 :]

    def replace_from(self, step: int, tokens: Sequence[int]) -> None:
        """Cut back to `step` and go on with `tokens`."""
        self.cut(step)
        for token in tokens:
            self.append(token)
