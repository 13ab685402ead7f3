"""Mode dragon (SPEC 1; DRAGON): both sides draft ahead and decide every token by their mixture.

machine     own drafts, their drafts, decide, roll back       Dragon
planner     which forward is next, and the drafts it gives    Planner
drafts      the drafts at hand, by step and prefix hash       DraftQueue
decision    two drafts of a step become its target            Decision
placement   one side decides, and hands over                  Placement
"""

from functools import partial

from dragonrt.bundled import DEFAULT_MODEL
from dragonrt.modes.dragon.machine import Dragon
from dragonrt.modes.dragon.messages import SENT
from dragonrt.modes.dragon.resources import DragonResources, prepare
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.dragon.setup import DragonSetup
from dragonrt.modes.dragon.statistics import figures
from dragonrt.modes.question import Question
from dragonrt.modes.registry import DEFAULT_MODE, ModeEntry, register
from dragonrt.side import Side

__all__ = ["dragon"]


def dragon(
    side: Side, question: Question, settings: DragonSettings, resources: DragonResources
) -> Dragon:
    """Return the machine of one side of an answer."""
    return Dragon(DragonSetup(side, question, settings, resources))


register(
    ModeEntry(
        name=DEFAULT_MODE,
        settings=DragonSettings,
        device=partial(dragon, "device"),
        cloud=partial(dragon, "cloud"),
        model=DEFAULT_MODEL,
        exact=True,
        sends=lambda settings: SENT,
        prepare=prepare,
        help="both sides answer from their documents",
        statistics=figures,
    )
)
