"""The settings of any mode: how the two sides work together.

Each mode has a frozen dataclass of them. Options, settings files, the wire's Open, traces and
`--json` are derived from its fields. It raises DragonError if its fields do not fit together.
"""

from collections.abc import Sequence
from typing import ClassVar

from dragonrt.distributions import codec
from dragonrt.errors import DragonError
from dragonrt.modes.mode import OnLoss
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import speculative_rule
from dragonrt.sampling.samplers import Sampler

LOSS_HELP = "If the cloud is lost: alone (go on without it) or wait."
VERIFIER_HELP = "Verifier: its name or its file. Default: the bundled one of these models."


class Settings:
    """The settings that all modes have. A mode overrides what differs."""

    mode: ClassVar[str]
    """The name of the mode."""
    on_loss: OnLoss = "wait"
    """The reaction of the device to a lost other side."""
    verifies: ClassVar[bool] = False
    """Whether blocks are read in one forward even where that gives other last bits."""

    @property
    def goes_alone(self) -> bool:
        """Whether the device answers without the other side while it is away."""
        return self.on_loss == "alone"

    @property
    def late(self) -> bool:
        """Whether the device reads the question when a prediction is first wanted."""
        return False

    @property
    def needs_all(self) -> bool:
        """Whether every other side must be there."""
        return False

    @property
    def weighs(self) -> str:
        """The option by which the mode weighs the other sides itself; "" if the user may."""
        return ""

    @property
    def keeps_drafts(self) -> bool:
        """Whether the device sends target tokens only."""
        return False

    @property
    def redacts(self) -> bool:
        """Whether some target tokens are withheld, too."""
        return False

    @property
    def pads(self) -> bool:
        """Whether every frame has one of a few sizes."""
        return False

    @property
    def cadence(self) -> tuple[float, int]:
        """Seconds between the frames of a constant rate, 0: there is none; ticks of one budget."""
        return 0.0, 0

    @property
    def relevance_floor(self) -> float | None:
        """The floor of a question that leaves it to the mode."""
        return None

    @property
    def unranked(self) -> str | None:
        """Why the device does not know the target's probabilities; None if it does."""
        return "in this mode the device does not know the target's distribution"

    @property
    def level(self) -> Disclosure | None:
        """The level of disclosure, of a mode that has several."""
        return None

    @property
    def levels(self) -> "Sequence[Settings]":
        """These settings, then those of each level that discloses less, as far as they fit."""
        return (self,)


def check_codec(name: str, *, because: str = "") -> None:
    """Refuse an unknown codec, and one without distributions if `because`."""
    if not codec(name, 2).sends_distributions and because:
        raise DragonError(f"{because} and the codec {name} sends none: choose another --codec")


def check_verifies(name: str, code: str) -> None:
    """Refuse a codec that sends no distributions where the rule verifies with them."""
    check_codec(code)
    sends = codec(code, 2).sends_distributions
    if speculative_rule(name, Noise(0), Sampler()).sends_distributions and not sends:
        raise DragonError(
            f"the rule {name} verifies with distributions and the codec {code} sends none: "
            "choose a codec that does, such as ksqs:64:100"
        )
