"""Draft likely alternatives beside the drafted sequence, as further rows of a forward (SPEC 1.9).

The undecided texts form a tree. After a prefix that the own side has predicted, the target is its
draft, or one of the next best tokens of its race; where the other side's draft is at hand, too, it
is known. The leaves are prefixes without an own draft. Those that the target most probably reaches
are drafted. A draft on a branch is like any other, so the text cannot depend on what is drafted.
"""

import heapq

from dragonrt.modes.dragon.decision import Decision
from dragonrt.modes.dragon.drafts import Drafts, SideDraft
from dragonrt.modes.dragon.terms import Terms
from dragonrt.modes.mode import Span
from dragonrt.modes.prefix import extend_hash

RUNNERS_UP = 4
"""Next best tokens of the own race that come with each draft."""
SHARPNESS = 1.5
"""How the probability that the target is a token grows with its score in the own race."""
ELSEWHERE = 0.03
"""The probability that the target is none of the own race's best tokens."""
LEAST = 0.01
"""No row is spent on a prefix that the target reaches with less probability."""
VISITED = 400
"""Prefixes looked at in one search."""


class Branches:
    """The tree over the drafts at hand, which change beneath it."""

    def __init__(self, terms: Terms, drafts: Drafts, decision: Decision) -> None:
        self._count = terms.settings.most_branches
        self._stop_tokens = terms.question.stop_tokens
        self._drafts = drafts
        self._decision = decision

    def work(self, span: Span, longest: int) -> list[Span]:
        """Return the likeliest prefixes of less than `longest` tokens to draft after, best first.

        Each is a Span of one prefix, and none of `span`.
        """
        drafts, taken = self._drafts, span.hashes[span.first :]
        decided = drafts.prefix.tokens[: drafts.decided]
        hashes = drafts.prefix.hashes[: drafts.decided + 1]
        found: list[Span] = []
        order = 0
        heap: list[tuple[float, int, list[int], list[int]]] = [(-1.0, 0, [], [hashes[-1]])]
        while heap and len(found) < self._count and order < VISITED:
            minus_p, _, tokens, beyond = heapq.heappop(heap)
            step = len(decided) + len(tokens)
            if minus_p > -LEAST:
                break
            own = drafts.own.get(step, beyond[-1])
            if own is None:
                if beyond[-1] not in taken and not drafts.own.crowded(step):
                    found.append(Span([*decided, *tokens], [*hashes, *beyond[1:]], step))
                continue
            if step >= longest:
                continue
            for token, probability in self._following(own):
                if token not in self._stop_tokens:
                    order += 1
                    longer = [*beyond, extend_hash(beyond[-1], token)]
                    heapq.heappush(heap, (minus_p * probability, order, [*tokens, token], longer))
        return found

    def _following(self, own: SideDraft) -> list[tuple[int, float]]:
        """Return the tokens that may be the target after a prefix, with their probabilities."""
        theirs = self._drafts.theirs.get(own.step, own.prefix_hash)
        if theirs is not None:
            target = self._decision.target(own, theirs)
            if target is not None:
                return [(target, 1.0)]
        likely = [(token, part**SHARPNESS) for token, part in ((own.token, 1.0), *own.others)]
        total = sum(weight for _, weight in likely) / (1 - ELSEWHERE)
        return [(token, weight / total) for token, weight in likely]
