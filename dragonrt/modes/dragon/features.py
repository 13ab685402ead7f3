"""Composes the parts of an answer by its settings: decision, draft planner and plugs."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import mix
from dragonrt.modes.dragon.decision import Decided, Decision
from dragonrt.modes.dragon.disclosing import Guarding
from dragonrt.modes.dragon.drafts import Drafts, SideDraft
from dragonrt.modes.dragon.placement import Placement
from dragonrt.modes.dragon.planner import Planner
from dragonrt.modes.dragon.plugs import Hooks, Machine, Plug
from dragonrt.modes.dragon.setup import DragonSetup
from dragonrt.sampling.aggregation import side_weights
from dragonrt.traces.events import TokenRanked


def features(
    setup: DragonSetup, drafts: Drafts, machine: Machine
) -> tuple[Decision, Planner, Hooks]:
    """Return the parts of a machine; with the default settings there are no plugs."""
    question, settings = setup.question, setup.settings
    decision, plugs = Decision(setup), list[Plug]()
    if setup.keeps_drafts:
        plugs.append(Guarding(setup, drafts))
    if settings.placement is not Aggregator.BOTH:
        plugs.append(Placement(setup, drafts, decision, machine))
    if question.top_logprobs is not None:
        plugs.append(Ranking(question.top_logprobs, machine))
    return decision, Planner(setup, drafts, decision), Hooks(plugs)


@dataclass(frozen=True, slots=True)
class Ranking(Plug):
    """Ranks the `count` likeliest tokens of each decided step."""

    count: int
    machine: Machine

    @override
    def on_decision(self, decided: Decided) -> None:
        if decided.own is not None:
            drafts = decided.own, decided.theirs
            self.machine.emit(*ranked(self.count, decided.token, *drafts))


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
    target = known[0]
    if theirs is not None:
        target = mix(known, side_weights(own.relevance + own.kept, theirs.relevance + theirs.kept))
    order = (-target.probabilities).argsort(kind="stable")[:count]
    likeliest = tuple(target.ids[order].tolist()), tuple(target.probabilities[order].tolist())
    return (TokenRanked(own.step, token, target.probability(token), *likeliest),)
