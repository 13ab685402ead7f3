"""The target's probability of each decided token, and its likeliest tokens, for whoever asks.

They are those of the mixture that the token was decided by, before temperature, top-p and so on.
"""

from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import codec, mix
from dragonrt.modes.drafts import SideDraft
from dragonrt.modes.settings import DragonSettings, Settings
from dragonrt.sampling.aggregation import side_weights
from dragonrt.sampling.samplers import Sampler
from dragonrt.traces.events import TokenRanked

ON_DEVICE = (Aggregator.BOTH, Aggregator.DEVICE, Aggregator.SYNC)
"""Placements with which the device decides every token, and so mixes both distributions."""


def unranked(settings: Settings, sampler: Sampler) -> str | None:
    """Return why the device does not know the target's probabilities; None if it does."""
    if not isinstance(settings, DragonSettings):
        return "only mode dragon knows the target's distribution on the device"
    if settings.placement not in ON_DEVICE:
        return f"with --aggregator {settings.aggregator} the cloud decides tokens, too"
    name = settings.codec_for(sampler)
    if not codec(name, 2).complete:
        return f"the codec {name} sends the cloud's distribution in part only"
    return None


def ranked(
    step: int, token: int, own: SideDraft, theirs: SideDraft | None, count: int
) -> TokenRanked | None:
    """Return the probability of the decided `token`, and the `count` likeliest tokens.

    Without `theirs` the own distribution is the target. None where one is not decoded.
    """
    drafts = [own] if theirs is None else [own, theirs]
    known = [each.distribution for each in drafts if each.distribution is not None]
    if len(known) < len(drafts):
        return None
    weights = (1.0,) if theirs is None else side_weights(own.relevance, theirs.relevance)
    target = mix(known, weights)
    order = (-target.probabilities).argsort(kind="stable")[:count]
    return TokenRanked(
        step,
        token,
        target.probability(token),
        tuple(target.ids[order].tolist()),
        tuple(target.probabilities[order].tolist()),
    )
