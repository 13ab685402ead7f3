"""The settings of mode federated, and what a side needs for it (FederatedResources)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from msgspec import Meta
from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.modes.settings import Resources, Settings, check_codec
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import SampleQuantize, speculative_rule
from dragonrt.sampling.samplers import Sampler
from dragonrt.settings import Text, check, own, setting
from dragonrt.wire.fields import MAX_BLOCK

Weighing = Literal["fixed", "relevance"]
"""The source of the weights of a round: the settings, or the relevance of each's documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedSettings(Settings):
    """Mode federated: a coordinator drafts, several workers upload distributions (SPEC 3).

    `codec` encodes uploads; drafts travel as ids. With `block_tokens` 0, no tokens are drafted.
    """

    mode: ClassVar[str] = "federated"
    verifies: ClassVar[bool] = True

    rule: Text = setting("coupled", "Decision rule: coupled or rejection.")
    codec: Text = setting("topk:64:residual", "Codec of uploads: topk:K:residual …")
    block_tokens: Annotated[int, Meta(ge=0, le=MAX_BLOCK - 1)] = own(8, "Tokens of a block.")
    weights: Weighing = own(
        "fixed", "Weights of workers: fixed, or the relevance of their documents.", rare=True
    )
    quorum_deadline: Annotated[float, Meta(ge=0.001, le=1e6)] | None = own(
        None,
        "Seconds to wait for late workers. Default: four times the slowest one's median.",
        rare=True,
    )
    require_all: bool = own(False, "Decide no token without all workers.", rare=True)

    def __post_init__(self) -> None:
        check(self)
        check_codec(self.codec, because="workers upload distributions")
        speculative_rule(self.rule, Noise(0), Sampler())
        if self.rule == SampleQuantize.name:
            raise DragonError(
                f"the rule {self.rule} is a baseline of another mode: use coupled or rejection"
            )

    @property
    @override
    def needs_all(self) -> bool:
        return self.require_all

    @property
    @override
    def weighing_option(self) -> str:
        return "" if self.weights == "fixed" else f"weights {self.weights}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedResources(Resources):
    """A side's vocabulary size, timeouts and, on a device, its workers: name to weight above 0."""

    members: Mapping[str, float] = field(default_factory=dict)
