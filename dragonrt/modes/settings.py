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
        """Whether the device reads the question only when the first prediction is wanted."""
        return False

    @property
    def needs_all(self) -> bool:
        """Whether every other side must be connected before a question is answered."""
        return False

    @property
    def weighs(self) -> str:
        """The option by which the mode weighs other sides, as text; "" if the user weighs them."""
        return ""

    @property
    def keeps_drafts(self) -> bool:
        """Whether the device sends target tokens, but no drafts and no distributions."""
        return False

    @property
    def redacts(self) -> bool:
        """Whether the device withholds some target tokens, not only its drafts."""
        return False

    @property
    def pads(self) -> bool:
        """Whether every frame is padded to one of a few sizes."""
        return False

    @property
    def cadence(self) -> tuple[float, int]:
        """(seconds of a tick, 0 if no constant rate; ticks of which it lasts a multiple)."""
        return 0.0, 0

    @property
    def relevance_floor(self) -> float | None:
        """The relevance floor of questions that set none; None if they have none then."""
        return None

    @property
    def unranked(self) -> str | None:
        """Why the device does not know the target's probabilities; None if it does."""
        return "in this mode the device does not know the target's distribution"

    @property
    def level(self) -> Disclosure | None:
        """The level of disclosure; None in a mode that has only one."""
        return None

    @property
    def levels(self) -> "Sequence[Settings]":
        """These settings, then the same at each level that discloses less, if the rest permits."""
        return (self,)


def check_codec(name: str, *, because: str = "") -> None:
    """Raise DragonError for an unknown codec or, with `because`, for one without distributions."""
    if not codec(name, 2).sends_distributions and because:
        raise DragonError(f"{because} and the codec {name} sends none: choose another --codec")


def check_verifies(name: str, code: str) -> None:
    """Raise DragonError if the rule `name` verifies with distributions and the codec sends none."""
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
    """A side as it prepares the resources of a mode.

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
        """Return the controller that `--controller` calls `name`. Raises ControlError."""

    def verifier(self, file: str | None, target: str) -> TokenVerifier:
        """Return the verifier in `file`, or if None one for the target model of that fingerprint.

        Raises ControlError if none fits the two models.
        """


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Another side: its `weight` in the mixture, above 0, and the fingerprint of its model.

    `fingerprint()` raises DragonError while the side is not connected.
    """

    weight: float
    fingerprint: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a side needs for an answer besides question and settings; each mode adds its own.

    `vocabulary` counts tokens; `marker` are the tokens that the cloud reads for withheld ones.
    """

    vocabulary: int
    timeouts: Timeouts = USUAL
    marker: tuple[int, ...] = ()

    @classmethod
    def of(cls, host: Host, **own: Any) -> Self:
        """Return resources with the host's parts of any mode, and the `own` fields of this mode."""
        return cls(vocabulary=host.vocabulary, timeouts=host.timeouts, marker=host.marker, **own)


S = TypeVar("S", bound=Settings)
R = TypeVar("R", bound=Resources)


class ModeEntry(ABC, Generic[S, R]):
    """What the rest of the program knows of one mode.

    Attributes:
        settings: the class of its settings.
        help: a line for the help of `--mode`.
        model: the device's default model.
        exact: whether each token of the text is the target token.
        several: whether the other sides are workers that the user names, not one cloud.
        unread: what the device's documents are for if the text is not drawn from them, else None.
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
        """Return a new Mode for one answer on the device."""

    @abstractmethod
    def cloud(self, question: Question, settings: S, resources: R) -> Mode:
        """Return a new Mode for one answer on a cloud or worker."""

    @abstractmethod
    def prepare(self, host: Host, others: Mapping[str, Counterpart], settings: S) -> R:
        """Return the resources of `host`; `others` are its other sides by name, none on a cloud.

        Raises DragonError for parts that do not fit the models.
        """

    def check(self, settings: S, model: str) -> None:
        """Check the files that settings name, if any, before a model of that name is loaded.

        Raises ControlError for a file that does not hold what the settings say.
        """
        return

    def carry(self, resources: R, records: Sequence[Record]) -> R:
        """Return the resources after an answer with these records; by default the same ones."""
        return resources

    @abstractmethod
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        """Return the statistics of an answer that only this mode has, by name."""
