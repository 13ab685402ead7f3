"""The target's probability of each decided token, and its likeliest tokens, for whoever asks.

They are those of the mixture that the token was decided by, before temperature, top-p and so on.
"""

from collections.abc import Callable, Sequence
from functools import partial

from dragonrt.distributions import mix
from dragonrt.modes.drafts import SideDraft
from dragonrt.modes.question import Question
from dragonrt.sampling.aggregation import side_weights
from dragonrt.traces.events import Event, TokenRanked

Observer = Callable[[int, int, SideDraft | None, SideDraft | None], Sequence[Event]]
"""Returns events about a decided step: its number, the token, the own draft and the other's."""


def observers(question: Question) -> tuple[Observer, ...]:
    """Return what ranks the decided tokens, if the question asks for that."""
    count = question.top_logprobs
    return () if count is None else (partial(ranked, count),)


def ranked(
    count: int, step: int, token: int, own: SideDraft | None, theirs: SideDraft | None
) -> Sequence[TokenRanked]:
    """Return the probability of the decided `token`, and the `count` likeliest tokens.

    Without `theirs` the own distribution is the target. Empty where one is not decoded.
    """
    if own is None:
        return ()
    drafts = [own] if theirs is None else [own, theirs]
    known = [each.distribution for each in drafts if each.distribution is not None]
    if len(known) < len(drafts):
        return ()
    weights = (1.0,) if theirs is None else side_weights(own.relevance, theirs.relevance)
    target = mix(known, weights)
    order = (-target.probabilities).argsort(kind="stable")[:count]
    found = TokenRanked(
        step,
        token,
        target.probability(token),
        tuple(target.ids[order].tolist()),
        tuple(target.probabilities[order].tolist()),
    )
    return (found,)
