"""The contract of the four modes: their settings, and what the rest of the program knows of each.

Each mode has a frozen dataclass of settings: how the two sides work together. Options, settings
files, the wire's Open, traces and `--json` are derived from its fields. It raises DragonError if
its fields do not fit together.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from dragonrt.bundled import DEFAULT_DRAFT
from dragonrt.control.scheduler import DecodeProfile
from dragonrt.control.trained import Controller, TokenVerifier
from dragonrt.distributions import codec
from dragonrt.errors import DragonError
from dragonrt.modes.mode import Mode, OnLoss
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import speculative_rule
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Record

LOSS_HELP = "If the cloud is lost: alone (continue without it) or wait (for it)."
VERIFIER_HELP = "Verifier: a name or a file. Default: the bundled one of these models."


class Settings:
    """The settings that all modes have. A mode overrides what differs."""

    mode: ClassVar[str]
    """The name of the mode."""
    rule: str
    codec: str
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
        """Whether every other side must be connected before a question is answered."""
        return False

    @property
    def weighs(self) -> str:
        """The option by which the mode, not the user, weighs other sides; "" if there is none."""
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
        """The relevance floor of questions that set none."""
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


UNREAD = (
    "your documents only help to draft here; the text is {}, and does not answer from them: "
    "--mode dragon does"
)


class Host(Protocol):
    """The side that prepares a mode's resources.

    `marker` are the tokens that another side reads for withheld ones, `profile` is the side's
    offline decode profile, if it has one.
    """

    @property
    def side(self) -> Side: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def timeouts(self) -> Timeouts: ...
    @property
    def marker(self) -> tuple[int, ...]: ...
    @property
    def profile(self) -> DecodeProfile | None: ...

    def controller(self, name: str) -> Controller:
        """Return the controller of a specification. Raises ControlError."""

    def verifier(self, file: str | None, target: str) -> TokenVerifier:
        """Return the file's verifier, or the bundled one, for a target of that fingerprint.

        Raises ControlError if it does not fit.
        """


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Another side: its `weight` in the mixture, above 0, and what returns its model's fingerprint.

    `fingerprint` raises DragonError while the side is not connected.
    """

    weight: float
    fingerprint: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """A side's parts of an answer besides question and settings, in any mode.

    `marker` are the tokens that the cloud reads for withheld ones. A mode adds its own.
    """

    vocabulary: int
    timeouts: Timeouts = USUAL
    marker: tuple[int, ...] = ()

    @classmethod
    def of(cls, host: Host, **own: Any) -> Self:
        """Return the resources of a side's host, with the mode's `own`."""
        return cls(vocabulary=host.vocabulary, timeouts=host.timeouts, marker=host.marker, **own)


S = TypeVar("S", bound=Settings)
R = TypeVar("R", bound=Resources)


class ModeEntry(ABC, Generic[S, R]):
    """One mode.

    Attributes:
        settings: the class of its settings.
        help: a line for the help of `--mode`.
        model: the device's default model.
        exact: the text is the target's, to the token.
        several: the other sides are workers that the user names.
        unread: the use of the device's documents if the text is not drawn from them.
    """

    settings: type[S]
    help: ClassVar[str]
    model: ClassVar[str] = DEFAULT_DRAFT
    exact: ClassVar[bool] = True
    several: ClassVar[bool] = False
    unread: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        return self.settings.mode

    @abstractmethod
    def device(self, question: Question, settings: S, resources: R) -> Mode:
        """Return the machine of the device."""

    @abstractmethod
    def cloud(self, question: Question, settings: S, resources: R) -> Mode:
        """Return the machine of another side."""

    @abstractmethod
    def prepare(self, host: Host, others: Mapping[str, Counterpart], settings: S) -> R:
        """Return the resources of a side, whose other sides are given by name, of a cloud none.

        Raises DragonError for parts that do not fit the models.
        """

    def check(self, settings: S, model: str) -> None:
        """Read the files that settings name, before a model of that name is loaded.

        Raises ControlError for a file that does not hold what the settings say.
        """
        return

    def carry(self, resources: R, records: Sequence[Record]) -> R:
        """Return the resources of the next answer, after the answer that has these records."""
        return resources

    @abstractmethod
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        """Return the figures that only this mode has."""
