"""The settings of mode sprinter, and its resources."""

from dataclasses import dataclass
from typing import ClassVar

from dragonrt.control.trained import TokenVerifier
from dragonrt.errors import DragonError
from dragonrt.modes.entry import Resources
from dragonrt.modes.mode import OnLoss
from dragonrt.modes.settings import LOSS_HELP, VERIFIER_HELP, Settings, check_verifies
from dragonrt.sampling.verification import Rejection
from dragonrt.settings import check, own, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SprinterSettings(Settings):
    """Mode sprinter: a trained verifier stands in for the cloud's model (SPEC 4). Approximate.

    A drafted token that the verifier finds acceptable with a probability below `threshold` goes to
    the cloud, and so does the last one of `run_length` tokens in a row of which the cloud has
    verified none.
    """

    mode: ClassVar[str] = "sprinter"
    verifies: ClassVar[bool] = True

    rule: str = setting(Rejection.name, "Rule: rejection.")
    codec: str = setting("topk:64:renorm", "Codec of the doubtful token: topk:K:renorm …")
    verifier: str | None = own(None, VERIFIER_HELP, limit=4096)
    threshold: float | None = own(
        None,
        "The cloud decides tokens below this score. Default: the verifier's own.",
        low=0,
        high=1,
        rare=True,
    )
    run_length: int = own(
        32, "The cloud decides at least every Nth token.", low=1, high=256, rare=True
    )
    on_loss: OnLoss = own("alone", LOSS_HELP)

    def __post_init__(self) -> None:
        check(self)
        if self.rule != Rejection.name:
            raise DragonError(
                f"sprinter verifies by the rule {Rejection.name}, not {self.rule}: leave --rule out"
            )
        check_verifies(self.rule, self.codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class SprinterResources(Resources):
    """`verifier` is the device's, trained for the two models."""

    verifier: TokenVerifier | None = None
