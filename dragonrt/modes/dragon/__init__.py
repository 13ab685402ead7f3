"""Mode dragon (SPEC 1; DRAGON): both sides draft ahead, and decide each token by their mixture.

machine     drafts of both sides, decisions, rollback          Dragon
planner     the next forward, and the drafts from it           Planner
drafts      drafts by step and prefix hash                     DraftQueue
decision    two drafts of a step become its target token       Decision
placement   if only one side decides: which one is next        Placement
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import override

from dragonrt.bundled import DEFAULT_MODEL
from dragonrt.modes.dragon.machine import Dragon
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings, DragonSetup
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Counterpart, Host, ModeEntry
from dragonrt.traces.counts import AnswerCounts


class DragonMode(ModeEntry[DragonSettings, DragonResources]):
    """Makes each answer's state machine in mode dragon, which mixes both sides' distributions."""

    settings = DragonSettings
    help = "both sides answer from their documents"
    model = DEFAULT_MODEL

    @override
    def device(
        self, question: Question, settings: DragonSettings, resources: DragonResources
    ) -> Dragon:
        return Dragon(DragonSetup("device", question, settings, resources))

    @override
    def cloud(
        self, question: Question, settings: DragonSettings, resources: DragonResources
    ) -> Dragon:
        return Dragon(DragonSetup("cloud", question, settings, resources))

    @override
    def prepare(
        self, host: Host, others: Mapping[str, Counterpart], settings: DragonSettings
    ) -> DragonResources:
        found = DragonResources.of(host, profile=host.profile)
        if host.side == "cloud" and settings.redacts:  # in a long withheld run it receives nothing
            timeouts = replace(found.timeouts, answer_s=found.timeouts.idle_s)
            return replace(found, timeouts=timeouts)
        return found

    @override
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        names = ("forwards", "preempted", "rollbacks", "switches", "divergences", "alone_from")
        return {name: getattr(answer, name) for name in names}
