"""The settings of any mode: how the two sides work together.

Each mode has a frozen dataclass of them. Options, settings files, the wire's Open, traces and
`--json` are derived from its fields. It raises DragonError if its fields do not fit together.
"""

from collections.abc import Sequence

from dragonrt.distributions import codec
from dragonrt.errors import DragonError
from dragonrt.modes.mode import OnLoss
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import speculative_rule

LOSS_HELP = "If the cloud is lost: alone (go on without it) or wait."
VERIFIER_HELP = "Verifier: its name or its file. Default: the bundled one of these models."


class Settings:
    """The settings that all modes have. A mode overrides what differs."""

    on_loss: OnLoss = "wait"
    """The reaction of the device to a lost other side."""

    @property
    def goes_alone(self) -> bool:
        """Whether the device answers without the other side while it is away."""
        return self.on_loss == "alone"

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
