"""Mode dragon (SPEC 1; DRAGON): both sides draft ahead and decide every token by their mixture.

    machine     own drafts, their drafts, decide, roll back       Dragon
    planner     which forward is next, and the drafts it gives    Planner
    drafts      the drafts at hand, by step and prefix hash       DraftQueue
    decision    two drafts of a step become its target            Decision

What follows is held by the machine only if the settings ask for it:

    race        codec `race`: entries on request                  a Decision
    branches    alternatives beside the drafted sequence          in Planner.beside
    placement   one side decides, and hands over                  Dragon.takes, on_send, ...
    disclosing  a device that keeps its drafts                    a Dragon
    ranking     probabilities of decided tokens                   in Dragon.on_decision
"""

from dragonrt.modes.dragon.disclosing import dragon
from dragonrt.modes.dragon.terms import Terms

__all__ = ["Terms", "dragon"]
