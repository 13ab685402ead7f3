"""What the settings of an answer ask for: its decision, its draft planner and its plugs."""

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.branches import RUNNERS_UP, Branches
from dragonrt.modes.dragon.decision import Decision
from dragonrt.modes.dragon.drafts import Drafts
from dragonrt.modes.dragon.placement import Placement
from dragonrt.modes.dragon.planner import Planner
from dragonrt.modes.dragon.plugs import Hooks, Plug, Port
from dragonrt.modes.dragon.race import Race
from dragonrt.modes.dragon.ranking import Ranking
from dragonrt.modes.dragon.terms import Terms
from dragonrt.sampling.aggregation import Coupled


def features(terms: Terms, drafts: Drafts, port: Port) -> tuple[Decision, Planner, Hooks]:
    """Return the parts of a machine; with the default settings there are no plugs."""
    question, settings = terms.question, terms.settings
    decision, plugs = Decision(terms), list[Plug]()
    if not terms.codec.complete:
        decision = race = Race(terms, drafts, port)
        plugs.append(race)
    if settings.placement is not Aggregator.BOTH:
        plugs.append(Placement(terms, drafts, decision, port))
    if question.top_logprobs is not None:
        plugs.append(Ranking(question.top_logprobs, port))
    planner = Planner(terms, drafts, decision)
    if settings.most_branches and settings.rule == Coupled.name:
        planner.beside = Branches(terms, drafts, decision).work
        planner.others = RUNNERS_UP
    return decision, planner, Hooks(plugs)
