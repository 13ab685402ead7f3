"""The setup of one answer of mode dragon."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import Codec, codec
from dragonrt.errors import DragonError
from dragonrt.modes.dragon.resources import DragonResources
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.sampling.aggregation import Algorithm1, Rule, rule
from dragonrt.sampling.noise import Noise
from dragonrt.side import Side


@dataclass(frozen=True)
class DragonSetup:
    """One side's setup of an answer: what both agreed on, and what this side has."""

    side: Side
    question: Question
    settings: DragonSettings
    resources: DragonResources

    @cached_property
    def noise(self) -> Noise:
        """The keyed noise of the answer."""
        return Noise(self.question.seed)

    @cached_property
    def rule(self) -> Rule:
        """The rule by which two drafts become the target token."""
        return rule(self.settings.rule, self.noise, self.question.sampler)

    @cached_property
    def codec(self) -> Codec:
        """The codec of distributions."""
        return codec(self.settings.codec, self.resources.vocabulary)

    @property
    def decides_first(self) -> bool:
        """Whether this side decides the first step of a session."""
        placement = self.settings.placement
        return placement is Aggregator.BOTH or placement.first() == self.side

    @property
    def keeps_drafts(self) -> bool:
        """Whether this side sends no drafts."""
        return self.side == "device" and self.settings.keeps_drafts

    @property
    def marker(self) -> Sequence[int] | None:
        """The tokens that replace withheld ones for the other side; None if it reads all.

        Raises DragonError for a model that has no such tokens.
        """
        if self.side != "device" or not self.settings.redacts:
            return None
        if not self.resources.marker:
            raise DragonError("the model has no tokens for what is withheld: use --disclose answer")
        return self.resources.marker

    @property
    def expects(self) -> bool:
        """Whether acceptance is what DRAGON Eq. 5 expects, not what happened."""
        schedules = self.settings.placement is Aggregator.GREEDY
        return schedules and self.settings.rule == Algorithm1.name
