"""The settings of mode dragon, and all parameters of one answer on one side (DragonSetup)."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar

from msgspec import Meta
from typing_extensions import override

from dragonrt.control.scheduler import Aggregator, DecodeProfile
from dragonrt.distributions import Codec, codec
from dragonrt.errors import DragonError
from dragonrt.link.profile import parse_duration
from dragonrt.modes.mode import OnLoss
from dragonrt.modes.question import Question
from dragonrt.modes.settings import LOSS_HELP, Resources, Settings, check_codec
from dragonrt.privacy.disclosure import FLOOR, Disclosure
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Algorithm1, Coupled, Rule, rule
from dragonrt.sampling.samplers import Sampler
from dragonrt.settings import Text, check, own, setting
from dragonrt.side import Side
from dragonrt.wire.fields import MAX_RUN_AHEAD

TRAFFIC = re.compile(r"plain|padded|constant:([^:]+)(?::([1-9][0-9]{0,8}))?")
"""The shapes of traffic; the groups are the tick and the number of ticks."""


def constant_rate(traffic: str | None) -> tuple[float, int]:
    """Parse `--traffic constant:TICK:N` into (seconds per tick, N); 0 seconds for other traffic.

    One frame is sent at every tick, for a multiple of N ticks, 500 by default. Raises DragonError.
    """
    found = TRAFFIC.fullmatch(traffic or "plain")
    if found is None:
        raise DragonError(f"there is no traffic {traffic!r}: use plain, padded or constant:20ms")
    tick_s = parse_duration(found[1] or "0s")  # LinkError for what is no duration
    if found[1] and not 0.001 <= tick_s <= 10:
        raise DragonError(f"the tick of {traffic} must be from 1ms to 10s")
    return tick_s, int(found[2] or 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class DragonSettings(Settings):
    """The options of mode dragon (SPEC 1), such as aggregator, codec, disclosure, traffic."""

    mode: ClassVar[str] = "dragon"

    rule: Text = setting(
        "coupled", "Decision rule: coupled, or algorithm1 (with an --aggregator other than both)."
    )
    aggregator: Aggregator = setting(
        Aggregator.BOTH, "Aggregator: both, greedy, device, cloud, random, or sync (no drafts)."
    )
    codec: Text = setting("topp:0.8", "Codec of drafts: topp:P, topk:K:residual, dense:fp16 …")
    run_ahead: Annotated[int, Meta(ge=1, le=MAX_RUN_AHEAD)] = setting(
        32, "Most undecided tokens that a side drafts.", rare=True
    )
    follow: bool = setting(
        True, "Draft behind the peer's drafts, and look up drafts in documents (default)."
    )
    disclose: Disclosure = setting(
        Disclosure.DRAFTS,
        "What leaves this side: drafts (tokens and distributions), answer (its tokens), or "
        "redacted (its tokens without those that only your documents make likely).",
    )
    withhold: Annotated[float, Meta(ge=1, le=1e6)] = own(
        8.0,
        "redacted: tokens are withheld that your documents make more than X times likelier than "
        "the cloud alone.",
        rare=True,
    )
    reveal: Annotated[float, Meta(ge=0, le=1e6)] = own(
        8.0, "redacted: bits that an answer may reveal to the cloud.", rare=True
    )
    traffic: Text | None = setting(
        None,
        "Frames: plain, padded (to one of four sizes), or constant:TICK[:TICKS] (one frame every "
        "TICK, such as 20ms, for a multiple of 500 or TICKS ticks). Default: padded at --disclose "
        "answer and redacted, otherwise plain.",
    )
    on_loss: OnLoss = own("alone", LOSS_HELP)

    def __post_init__(self) -> None:
        check(self)
        check_codec(self.codec, because="both sides mix distributions")
        rule(self.rule, Noise(0), Sampler())  # there is one of that name
        constant_rate(self.traffic)
        if self.keeps_drafts and self.placement not in (Aggregator.DEVICE, Aggregator.SYNC):
            raise DragonError(
                f"with --disclose {self.disclose} the device decides every token, as it alone "
                "knows both drafts: leave out --aggregator"
            )
        if self.redacts and self.rule != Coupled.name:
            raise DragonError(
                "what is redacted is decided from both distributions, not from drafts: "
                f"use --rule {Coupled.name}"
            )
        if self.rule == Algorithm1.name and self.placement is Aggregator.BOTH:
            raise DragonError(
                "the leaderless aggregator needs coupled noise: "
                "use --rule coupled, or --aggregator greedy with --rule algorithm1"
            )

    @property
    @override
    def no_probabilities_because(self) -> str | None:
        if self.placement in (Aggregator.BOTH, Aggregator.DEVICE, Aggregator.SYNC):
            return None
        return f"with --aggregator {self.aggregator} the cloud decides tokens, too"

    @property
    @override
    def relevance_floor(self) -> float | None:
        return FLOOR if self.keeps_drafts else None

    @property
    @override
    def keeps_drafts(self) -> bool:
        return self.disclose != Disclosure.DRAFTS

    @property
    @override
    def redacts(self) -> bool:
        return self.disclose == Disclosure.REDACTED

    @property
    @override
    def level(self) -> Disclosure:
        return self.disclose

    @property
    @override
    def levels(self) -> Sequence[Settings]:
        names, found = list(Disclosure), list[Settings]([self])
        for name in names[names.index(self.disclose) + 1 :]:
            with suppress(DragonError):
                found.append(replace(self, disclose=name))
        return found

    @property
    @override
    def pads(self) -> bool:
        return self.keeps_drafts if self.traffic is None else self.traffic != "plain"

    @property
    @override
    def constant_rate(self) -> tuple[float, int]:
        return constant_rate(self.traffic)

    @property
    def placement(self) -> Aggregator:
        """Which side decides tokens: `aggregator`; DEVICE replaces BOTH if it sends no drafts."""
        both = self.aggregator is Aggregator.BOTH
        return Aggregator.DEVICE if both and self.keeps_drafts else self.aggregator

    @property
    def window(self) -> int:
        """For how many steps, from the first undecided one, the peer's drafts are kept."""
        return 2 * self.run_ahead + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DragonResources(Resources):
    """What a side needs in mode dragon; `profile` has measured seconds per draft, or None."""

    profile: DecodeProfile | None = None


@dataclass(frozen=True)
class DragonSetup:
    """The parameters of one answer on one side: agreed question and settings, own resources."""

    side: Side
    question: Question
    settings: DragonSettings
    resources: DragonResources

    @cached_property
    def noise(self) -> Noise:
        return Noise(self.question.seed)

    @cached_property
    def rule(self) -> Rule:
        """The aggregation rule, by which both sides' drafts of a step give its target token."""
        return rule(self.settings.rule, self.noise, self.question.sampler)

    @cached_property
    def codec(self) -> Codec:
        return codec(self.settings.codec, self.resources.vocabulary)

    @property
    def decides_first(self) -> bool:
        """Whether this side decides the first step; with aggregator `both`, each side does."""
        placement = self.settings.placement
        return placement is Aggregator.BOTH or placement.first() == self.side

    @property
    def keeps_drafts(self) -> bool:
        """Whether this side is a device that sends decided tokens only, and no drafts."""
        return self.side == "device" and self.settings.keeps_drafts

    @property
    def marker(self) -> Sequence[int] | None:
        """The tokens that the cloud receives for withheld ones; None if this side withholds none.

        Raises DragonError if tokens are withheld and the model has no marker.
        """
        if self.side != "device" or not self.settings.redacts:
            return None
        if not self.resources.marker:
            raise DragonError("the model has no tokens for what is withheld: use --disclose answer")
        return self.resources.marker

    @property
    def expects_acceptance(self) -> bool:
        """Whether acceptance rates average drafts' probabilities of acceptance, not 1s and 0s."""
        schedules = self.settings.placement is Aggregator.GREEDY
        return schedules and self.settings.rule == Algorithm1.name
