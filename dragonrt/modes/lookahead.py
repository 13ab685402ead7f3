"""How far a side drafts ahead of the decided text, and along which line (SPEC 1.3, 1.7)."""

from collections.abc import Callable
from dataclasses import dataclass

from dragonrt.modes.drafts import DraftQueue, SideDraft
from dragonrt.modes.prefix import TokenPrefix

BLOCK = 8
"""Positions one forward computes at most when a side follows the other's line (SPEC 1.7)."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Plans over the line of one side and the drafts at hand, which change beneath it.

    A side drafts at most `run_ahead` undecided steps of `max_tokens`; with `follows` the line may
    go on along the other side's drafts, of which `their_draft` gives that behind the first so many
    tokens of the line. `target` is the target token of a step where both sides'
    drafts for its prefix are at hand, None where finding it takes too long; `trusts_other` whether
    the other side's draft is likelier to become it than the own one. `decided` is everywhere the
    number of decided tokens, which the line begins with.
    """

    run_ahead: int
    max_tokens: int
    stop_tokens: tuple[int, ...]
    follows: bool
    line: TokenPrefix
    own: DraftQueue
    their_draft: Callable[[int], SideDraft | None]
    target: Callable[[int, SideDraft, SideDraft], int | None]
    trusts_other: Callable[[], bool]

    def limit(self, decided: int) -> int:
        """The longest prefix that may be drafted from now."""
        return min(decided + self.run_ahead, self.max_tokens) - 1

    def extend(self, decided: int) -> None:
        """Let the line go on along the drafts at hand: the own, or the other side's (SPEC 1.7).

        Where both are at hand, the target given this prefix is known, whoever decides it.
        """
        line, limit, follows = self.line, self.limit(decided), self.follows
        while len(line) <= limit:
            if len(line) > decided and line.tokens[-1] in self.stop_tokens:
                return
            own = self.own.get(len(line), line.hash)
            theirs = self.their_draft(len(line)) if follows else None
            if own is not None:
                target = None if theirs is None else self.target(len(line), own, theirs)
                line.append(own.token if target is None else target)
            elif theirs is not None and self.trusts_other():
                line.append(theirs.token)
            else:
                return

    def unpredicted(self, decided: int) -> tuple[int, int] | None:
        """The first and last prefix of the line to predict next, or None: nothing to draft.

        A draft on a branch may be at hand without those before it, which a reconnection dropped.
        """
        line = self.line
        last = min(len(line), self.limit(decided))
        if last > decided and line.tokens[last - 1] in self.stop_tokens:
            last -= 1
        first = decided
        while first <= last and self.own.get(first, line.hashes[first]) is not None:
            first += 1
        return (first, min(last, first + BLOCK - 1)) if first <= last else None

    def step_to(self, step: int, token: int, decided: int) -> bool:
        """Bring the line to `step` by an own draft; False where it goes, or has gone, elsewhere."""
        line = self.line
        if step > self.limit(decided):
            return False
        if len(line) < step:
            line.append(token)
        return line.tokens[step - 1] == token
