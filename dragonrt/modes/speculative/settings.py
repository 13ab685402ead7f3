"""The settings of mode speculative, and what a side needs for it (SpeculativeResources)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta
from typing_extensions import override

from dragonrt.control.trained import Controller
from dragonrt.distributions import ConformalThreshold, codec
from dragonrt.errors import DragonError
from dragonrt.modes.mode import OnLoss
from dragonrt.modes.settings import LOSS_HELP, Resources, Settings, check_verifies
from dragonrt.settings import PathText, Positive, Share, Text, check, own, setting

DraftSource = Literal["model", "lookup"]
"""The source of blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeSettings(Settings):
    """Mode speculative: the device drafts blocks, the cloud verifies them (SPEC 2).

    A block has `block_tokens` tokens, or as many as `controller` chooses. It ends before a token
    would exceed `budget` bits. With `pipelined`, blocks are sent before the verdicts on earlier
    ones. With `cloud_decodes`, and a codec without distributions, the cloud decodes while no block
    waits. Codec C-SQS drops probabilities below a threshold, which each token lowers by
    `learning_rate` · (dropped mass - `target`). √`horizon` (in tokens) divides these two (SQS A.3).
    """

    mode: ClassVar[str] = "speculative"
    verifies: ClassVar[bool] = True

    rule: Text = setting(
        "coupled", "Decision rule: coupled, rejection, or sample-quantize (biased, a baseline)."
    )
    codec: Text = setting("ids", "Codec of drafts: ids, qs:L, ksqs:K:L, csqs:BETA:L, dense:fp16 …")
    draft: DraftSource = setting(
        "model",
        "Source of drafts: model, or lookup (copies from documents, question and answer; no model "
        "computes here, and a cloud that decodes by itself looks up, too).",
    )
    block_tokens: Annotated[int, Meta(ge=0, le=256)] | None = own(
        None, "Tokens of a block. 0: the cloud decodes alone. Default: 4, or 8 with --no-pipelined."
    )
    budget: Positive | None = own(None, "Most bits of a block. Default: no bound.")
    controller: PathText | None = own(
        None,
        "What chooses tokens and resolution of each block: static:N:L, heuristic:L, default "
        "(trained), or a FILE. Default: --block-tokens.",
    )
    pipelined: bool = own(True, "Draft while blocks are verified (default), or wait.")
    cloud_decodes: bool = setting(
        True, "The cloud decodes by itself while no block waits (coupled, ids).", rare=True
    )
    learning_rate: Share = own(
        0.001, "η of C-SQS's threshold.", option="csqs_learning_rate", rare=True
    )
    target: Share = own(
        0.0005, "α of C-SQS: the mass it aims to drop.", option="csqs_target", rare=True
    )
    horizon: Positive | None = own(
        None,
        "Tokens of all answers together: η and α are divided by their root.",
        option="csqs_horizon",
        rare=True,
    )
    on_loss: OnLoss = own("alone", LOSS_HELP)

    def __post_init__(self) -> None:
        check(self)
        check_verifies(self.rule, self.codec)
        if self.controller is not None and self.block_tokens is not None:
            raise DragonError(
                "--controller chooses the tokens of a block: leave out --block-tokens"
            )
        if self.block_tokens == 0 and not self.decodes:
            raise DragonError("--block-tokens 0 needs a cloud that decodes: leave out --rule")
        if self.draft != "model" and self.controller is not None:
            raise DragonError("--controller reads what the model drafts: use --draft model")

    @property
    @override
    def prefills_late(self) -> bool:
        return self.draft == "lookup"

    @property
    def length(self) -> int:
        """The number of tokens of a block, unless a controller chooses it."""
        if self.block_tokens is not None:
            return self.block_tokens
        return 4 if self.pipelined else 8  # near the fastest at 100 ms round trip

    @property
    def outstanding(self) -> int:
        """The number of blocks that may await their verdicts at the same time."""
        return 4 if self.pipelined else 1

    @property
    def first_threshold(self) -> ConformalThreshold | None:
        """Codec C-SQS's probability threshold at an answer's first token; None for other codecs."""
        family, *arguments = self.codec.split(":")
        if family != "csqs":
            return None
        first = float(arguments[0])
        return ConformalThreshold.first(first, self.learning_rate, self.target, self.horizon)

    @property
    def decodes(self) -> bool:
        """Whether the cloud decodes while no block waits; the codec must then send only tokens."""
        return self.cloud_decodes and not codec(self.codec, 2).sends_distributions


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeResources(Resources):
    """What a side needs in mode speculative.

    `controller` chooses blocks' lengths, if used. `threshold` is the probability below which codec
    C-SQS drops tokens, as the last answer left it; None for other codecs or a first answer.
    `rate` maps a time in seconds to the uplink's bit/s, if known.
    """

    controller: Controller | None = None
    threshold: ConformalThreshold | None = None
    rate: Callable[[float], float] | None = None
