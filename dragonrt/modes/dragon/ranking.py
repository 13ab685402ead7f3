"""The target's probability of each decided token, and its likeliest tokens.

They are those of the mixture that decided the token, before temperature, top-p and so on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dragonrt.distributions import mix
from dragonrt.modes.dragon.decision import Decided
from dragonrt.modes.dragon.drafts import SideDraft
from dragonrt.modes.dragon.plugs import Plug, Port
from dragonrt.sampling.aggregation import side_weights
from dragonrt.traces.events import TokenRanked


@dataclass(frozen=True, slots=True)
class Ranking(Plug):
    """Ranks the `count` likeliest tokens of each decided step."""

    count: int
    port: Port

    def on_decision(self, decided: Decided) -> None:
        if decided.own is not None:
            self.port.emit(*ranked(self.count, decided.token, decided.own, decided.theirs))


def ranked(
    count: int, token: int, own: SideDraft, theirs: SideDraft | None
) -> Sequence[TokenRanked]:
    """Return the probability of the decided `token`, and the `count` likeliest tokens.

    Without `theirs` the own distribution is the target. Empty where one is not decoded.
    """
    drafts = [own] if theirs is None else [own, theirs]
    known = [each.distribution for each in drafts if each.distribution is not None]
    if len(known) < len(drafts):
        return ()
    weights = (1.0,) if theirs is None else side_weights(own.relevance, theirs.relevance)
    target = mix(known, weights)
    order = (-target.probabilities).argsort(kind="stable")[:count]
    likeliest = tuple(target.ids[order].tolist()), tuple(target.probabilities[order].tolist())
    return (TokenRanked(own.step, token, target.probability(token), *likeliest),)
