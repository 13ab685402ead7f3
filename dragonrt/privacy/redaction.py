"""The transcript: what the cloud reads of the text that the device decides (SPEC 1.10).

At level `redacted` it is r(x): the decided text with one marker for each maximal run of withheld
tokens. Steps and prefix hashes on the wire are those of r(x), so the length of a run is not sent.
r(x) does not change within a run, so the cloud's drafts after it stay valid.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

MARKER = " …"
"""The marker of a run of withheld tokens."""


class Prefix(Protocol):
    """A token sequence with the hash of each of its prefixes (`modes.prefix.TokenPrefix`)."""

    tokens: list[int]
    hashes: list[int]

    def replace_from(self, step: int, tokens: Sequence[int]) -> None:
        """Cut back to `step` tokens and append `tokens`."""


class Redacted:
    """r(x) of the decided tokens of `text`; the first `decided` count as withheld.

    Implements `modes.dragon.drafts.Transcript`. `prefix` is empty at first. It holds r(x), then
    drafted tokens.
    """

    def __init__(self, text: Prefix, prefix: Prefix, decided: int, marker: Sequence[int]) -> None:
        self.prefix = prefix
        self.length = 0
        self._text = text
        self._marker = marker
        self._decided = 0
        self._in_run = False
        for token in text.tokens[:decided]:
            self.append(token, withheld=True)

    def place(self, step: int) -> tuple[int, int]:
        """Return the other side's step and prefix hash for what follows `step` tokens here."""
        ahead, prefix = self._text.tokens[self._decided : step], self.prefix
        length = self.length + len(ahead)
        if prefix.tokens[self.length : length] != ahead:
            prefix.replace_from(self.length, ahead)
        return length, prefix.hashes[length]

    def append(self, token: int, withheld: bool) -> range:
        """Append the next decided token. Returns the steps that the other side now reads."""
        self._decided += 1
        new: Sequence[int] = (token,)
        if withheld:
            new = () if self._in_run else self._marker
        self._in_run = withheld
        if new:
            self.prefix.replace_from(self.length, new)
        first, self.length = self.length, self.length + len(new)
        return range(first, self.length)


def redacted(decisions: Iterable[tuple[int, bool]], marker: Sequence[int]) -> list[int]:
    """Return r(x) of a text of (token, withheld) decisions."""
    read: list[int] = []
    in_run = False
    for token, withheld in decisions:
        if not withheld:
            read.append(token)
        elif not in_run:
            read += marker
        in_run = withheld
    return read


def longest_redacted(max_tokens: int, marker: Sequence[int]) -> int:
    """Return the most tokens of r(x) for `max_tokens` tokens: every other one is withheld."""
    return max(max_tokens, (max_tokens + 1) // 2 * (1 + len(marker)))
