"""The contract of the four modes: what the rest of the program knows of each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from dragonrt.bundled import DEFAULT_DRAFT
from dragonrt.control.policies import Controller
from dragonrt.control.scheduler import DecodeProfile
from dragonrt.control.trained import TokenVerifier
from dragonrt.modes.mode import Mode
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.side import Side
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Record

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
    """A side's parts of an answer beside the question and the settings, in any mode.

    `marker` are the tokens that the cloud reads for withheld ones. A mode adds its own.
    """

    vocabulary: int
    timeouts: Timeouts = USUAL
    marker: tuple[int, ...] = ()

    @classmethod
    def of(cls, host: Host, **own: Any) -> Self:
        """Return those of a side, and the mode's own."""
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
        """Return the resources of the next answer, behind an answer of those records."""
        return resources

    @abstractmethod
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        """Return the figures that only this mode has."""
