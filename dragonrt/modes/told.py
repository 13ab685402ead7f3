"""What the cloud reads of the text that the device decides (SPEC 1.10).

At level `redacted` it reads r(x): the decided text with one marker for every maximal run of
withheld tokens. Its steps and prefix hashes are those of r(x), so that the length of a run is not
told; within a run r(x) does not change, and what the cloud drafted behind it stays good.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dragonrt.modes.prefix import TokenPrefix

MARKER = " …"
"""What stands for a run of withheld tokens."""


@dataclass(frozen=True, slots=True)
class ToldToken:
    """A token that the cloud gets to read: the `step`-th, behind the prefix of that hash."""

    step: int
    prefix_hash: int
    token: int


class Told:
    """All of the decided text, as the cloud reads it where nothing is withheld.

    `line` begins with the decided tokens and goes on as this side drafts.
    """

    def __init__(self, line: TokenPrefix, decided: int) -> None:
        self._line = line
        self._decided = decided

    @property
    def length(self) -> int:
        """How many tokens the cloud has been told."""
        return self._decided

    @property
    def tokens(self) -> list[int]:
        """The tokens that the cloud has been told."""
        return self._line.tokens[: self._decided]

    def prefix_hash(self, length: int) -> int:
        """Of the first `length` of them."""
        return self._line.hashes[length]

    def place(self, step: int) -> tuple[int, int]:
        """Where the cloud drafts what follows the first `step` tokens of the line: step and hash.

        What is not decided yet is taken as shown.
        """
        return step, self._line.hashes[step]

    def tell(self, token: int, *, withheld: bool) -> list[ToldToken]:
        """The line's next token is decided; what the cloud is told of it."""
        told = ToldToken(self._decided, self._line.hashes[self._decided], token)
        self._decided += 1
        return [told]


class Redacted(Told):
    """r(x) of the decided text; what is decided when it is made counts as withheld."""

    def __init__(self, line: TokenPrefix, decided: int, marker: Sequence[int]) -> None:
        super().__init__(line, 0)
        self._marker = marker
        self._read = TokenPrefix(line.hashes[0])  # r(x), and behind it what is not decided yet
        self._length = 0
        self._in_run = False
        for token in line.tokens[:decided]:
            self.tell(token, withheld=True)

    @property
    def length(self) -> int:
        return self._length

    @property
    def tokens(self) -> list[int]:
        return self._read.tokens[: self._length]

    def prefix_hash(self, length: int) -> int:
        return self._read.hashes[length]

    def place(self, step: int) -> tuple[int, int]:
        ahead = self._line.tokens[self._decided : step]
        for place, token in enumerate(ahead, start=self._length):
            if place < len(self._read) and self._read.tokens[place] != token:
                self._read.cut(place)
            if place == len(self._read):
                self._read.append(token)
        length = self._length + len(ahead)
        return length, self._read.hashes[length]

    def tell(self, token: int, *, withheld: bool) -> list[ToldToken]:
        self._decided += 1
        new: Sequence[int] = (token,)
        if withheld:
            new = () if self._in_run else self._marker
        self._in_run = withheld
        if new:
            self._read.replace_from(self._length, new)
        first, self._length = self._length, self._length + len(new)
        return [
            ToldToken(step, self._read.hashes[step], each)
            for step, each in enumerate(new, start=first)
        ]


def redacted(decisions: Iterable[tuple[int, bool]], marker: Sequence[int]) -> list[int]:
    """r(x) of a whole text: its tokens, each with whether it is withheld."""
    told = Redacted(line := TokenPrefix(0), 0, marker)
    for token, withheld in decisions:
        line.append(token)
        told.tell(token, withheld=withheld)
    return told.tokens


def longest_told(max_tokens: int, marker: Sequence[int]) -> int:
    """The most tokens that r(x) has of a text of so many, where every other one is withheld."""
    return max(max_tokens, (max_tokens + 1) // 2 * (1 + len(marker)))
