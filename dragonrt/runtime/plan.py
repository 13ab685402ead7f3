"""What both sides agree on for one generation."""

from dataclasses import dataclass, replace
from typing import Any, Self

from dragonrt.distributions import distribution_codec
from dragonrt.errors import DragonError
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.aggregation import Rule, rule
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler

PATIENCE_S = 30.0
"""A side that waits this long for the other one while the connection lives goes on alone."""


def placement_of(name: str) -> Placement:
    """The placement of that name; DragonError lists the names there are."""
    try:
        return Placement(name)
    except ValueError:
        names = ", ".join(placement.value for placement in Placement)
        raise DragonError(f"unknown aggregator {name!r}: choose one of {names}") from None


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of one generation: the device chooses them, `Open` carries them to the cloud.

    `run_ahead` bounds how many undecided steps a side drafts; `stop_tokens` end the answer and
    belong to it; `documents` is the number of documents each side uses, `relevance_temperature`
    divides their scores, every `reweight_every` tokens they are taken again (0: never). `follow`
    lets a side draft along what is likely to be decided anyway: the other side's line where that is
    the better guess (SPEC 1.7), and what its documents say next.
    """

    seed: int
    sampler: Sampler
    rule: str = "coupled"
    placement: Placement = Placement.BOTH
    codec: str = "topp:0.8"
    max_tokens: int = 64
    stop_tokens: tuple[int, ...] = ()
    run_ahead: int = 32
    documents: int = 2
    relevance_temperature: float = 0.05
    reweight_every: int = 0
    follow: bool = True

    @property
    def window(self) -> int:
        """Undecided steps for which the other side may send drafts.

        The other side's decided prefix is at most `run_ahead` steps ahead of ours, since it needs
        our drafts to decide, and its drafts are at most `run_ahead` ahead of that.
        """
        return 2 * self.run_ahead + 1

    def aggregation_rule(self) -> Rule:
        """The rule of this plan with its keyed noise."""
        return rule(self.rule, Noise(self.seed), self.sampler)

    def for_answer(self, seed: int, stop_tokens: tuple[int, ...]) -> Self:
        """This plan with the seed and the stop tokens of one answer."""
        return replace(self, seed=seed, stop_tokens=stop_tokens)

    def settings(self) -> dict[str, Any]:
        """What a reader of the answer wants to know of it."""
        return {"mode": "dragon", "rule": self.rule, "aggregator": self.placement.value}

    def check(self) -> None:
        """Refuse names that this side does not know, with their package's own line."""
        distribution_codec(self.codec, 2)
        self.aggregation_rule()
        if self.rule != "coupled" and self.placement is Placement.BOTH:
            raise DragonError(
                "the leaderless aggregator needs coupled noise: "
                "use --rule coupled, or --aggregator greedy with --rule algorithm1"
            )
