"""Drafting likely alternatives beside the line, as further rows of a forward (SPEC 1.9).

The undecided texts form a tree: after a prefix that the own side has predicted, the target is its
draft, or one of the next best tokens of its race; where the other side's draft is at hand, too, it
is known. Its leaves are prefixes without an own draft. Those that the target most probably gets to
are drafted. A draft on a branch is like any other, found by its step and hash, so the text cannot
depend on what is drafted.
"""

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dragonrt.modes.drafts import DraftQueue, SideDraft
from dragonrt.modes.mode import Span
from dragonrt.modes.prefix import extend_hash

SHARPNESS = 1.5
"""How the probability that the target is a token grows with its score in the own race."""
ELSEWHERE = 0.03
"""The probability that the target is none of the own race's best tokens."""
LEAST = 0.01
"""No row is spent on a prefix that the target gets to with less probability."""
VISITED = 400
"""Prefixes looked at in one search."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The tree over the drafts at hand, which change beneath it; see Lookahead for `target`."""

    stop_tokens: tuple[int, ...]
    own: DraftQueue
    theirs: DraftQueue
    target: Callable[[int, SideDraft, SideDraft], int | None]

    def leaves(
        self,
        decided: Sequence[int],
        hashes: Sequence[int],
        last: int,
        count: int,
        taken: Collection[int],
    ) -> list[Span]:
        """At most `count` prefixes of at most `last` tokens to draft after, the likeliest first.

        `hashes` are those of the `decided` text's prefixes; prefixes of the hashes `taken` are
        drafted already. Each is a Span of one prefix.
        """
        found: list[Span] = []
        order = 0
        heap: list[tuple[float, int, list[int], list[int]]] = [(-1.0, 0, [], [hashes[-1]])]
        while heap and len(found) < count and order < VISITED:
            minus_p, _, tokens, beyond = heapq.heappop(heap)
            step = len(decided) + len(tokens)
            if minus_p > -LEAST:
                break
            own = self.own.get(step, beyond[-1])
            if own is None:
                if beyond[-1] not in taken and not self.own.crowded(step):
                    text = [*decided, *tokens]
                    found.append(Span(text, [*hashes, *beyond[1:]], step))
                continue
            if step >= last:
                continue
            for token, probability in self._following(step, own):
                if token not in self.stop_tokens:
                    order += 1
                    longer = [*beyond, extend_hash(beyond[-1], token)]
                    heapq.heappush(heap, (minus_p * probability, order, [*tokens, token], longer))
        return found

    def _following(self, step: int, own: SideDraft) -> list[tuple[int, float]]:
        """The tokens that may be the target after a prefix, with their probabilities."""
        theirs = self.theirs.get(step, own.prefix_hash)
        if theirs is not None:
            target = self.target(step, own, theirs)
            if target is not None:
                return [(target, 1.0)]
        likely = [(token, part**SHARPNESS) for token, part in ((own.token, 1.0), *own.others)]
        total = sum(weight for _, weight in likely) / (1 - ELSEWHERE)
        return [(token, weight / total) for token, weight in likely]
