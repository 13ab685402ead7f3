"""The base classes that each mode implements: Settings, Resources and ModeEntry.

Options, settings files, Open messages, traces and `--json` derive from a mode's settings class.
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
    """Base class of a mode's settings; a mode overrides the properties in which it differs."""

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
        """Whether the device answers without the cloud while the cloud is lost."""
        return self.on_loss == "alone"

    @property
    def prefills_late(self) -> bool:
        """Whether the device's first forward also reads the prompt, with no prefill before it."""
        return False

    @property
    def needs_all(self) -> bool:
        """Whether all peers, not only one, must be connected before a question is answered."""
        return False

    @property
    def weighing_option(self) -> str:
        """The setting that forbids the user to weigh workers, for error texts; "" if none does."""
        return ""

    @property
    def keeps_drafts(self) -> bool:
        """Whether the device sends decided tokens only, without its drafts and distributions."""
        return False

    @property
    def redacts(self) -> bool:
        """Whether the device withholds some decided tokens from the cloud, and all its drafts."""
        return False

    @property
    def pads(self) -> bool:
        """Whether every frame on the wire is padded to one of a few sizes."""
        return False

    @property
    def constant_rate(self) -> tuple[float, int]:
        """(s, n): a frame goes every s seconds, for a multiple of n frames; s = 0: no such rate."""
        return 0.0, 0

    @property
    def relevance_floor(self) -> float | None:
        """The default least cosine between a document read and the question; None: no limit."""
        return None

    @property
    def no_probabilities_because(self) -> str | None:
        """Why the device cannot return tokens' probabilities (`top_logprobs`); None if it can."""
        return "in this mode the device does not know the target's distribution"

    @property
    def level(self) -> Disclosure | None:
        """The disclosure level: what the cloud receives. None in a mode that has only one."""
        return None

    @property
    def levels(self) -> "Sequence[Settings]":
        """These settings, then a copy per stricter disclosure level that a question may ask for."""
        return (self,)


def check_codec(name: str, *, because: str = "") -> None:
    """Raise DragonError if codec `name` is unknown, or lacks the distributions that a mode needs.

    `because` is why the mode needs them, for the error's text; "" means that it needs none.
    """
    if not codec(name, 2).sends_distributions and because:
        raise DragonError(f"{because} and the codec {name} sends none: choose another --codec")


def check_verifies(name: str, code: str) -> None:
    """Raise DragonError if verification rule `name` needs distributions that codec `code` omits."""
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
    """The running device or cloud, as `ModeEntry.prepare` sees it to make a mode's Resources.

    `marker` are the tokens that the cloud receives in place of withheld tokens. `profile` has the
    measured seconds per draft of this side's model; it is None if they were not measured.
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
        """Return controller `name`, which chooses blocks' lengths; ControlError if unusable."""

    def verifier(self, file: str | None, target: str) -> TokenVerifier:
        """Return sprinter's acceptance classifier in `file`; if None, the bundled one for `target`.

        `target` is the cloud model's fingerprint. Raises ControlError if none fits both models.
        """


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A peer, for `ModeEntry.prepare`: its `weight` in the mixture, above 0, and its model.

    `fingerprint()` returns its model's fingerprint. Raises DragonError while it is not connected.
    """

    weight: float
    fingerprint: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a side needs for answers besides question and settings; each mode adds its own fields.

    `vocabulary` counts tokens. The cloud reads the tokens `marker` instead of withheld tokens.
    """

    vocabulary: int
    timeouts: Timeouts = USUAL
    marker: tuple[int, ...] = ()

    @classmethod
    def of(cls, host: Host, **own: Any) -> Self:
        """Return a mode's Resources: the common fields from `host`, and the mode's `own` fields."""
        return cls(vocabulary=host.vocabulary, timeouts=host.timeouts, marker=host.marker, **own)


S = TypeVar("S", bound=Settings)
R = TypeVar("R", bound=Resources)


class ModeEntry(ABC, Generic[S, R]):
    """One mode for the rest of the program: its properties, and factories of its objects.

    Attributes:
        settings: the class of its settings.
        help: a line for the help of `--mode`.
        model: the device's default model.
        exact: whether each token is the one that the decision rule gives; not so in sprinter.
        several: whether the peers are workers that the user names, not one cloud.
        unread: a warning that answers do not come from the device's documents, or None.
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
        """Return a new Mode, the state machine of one answer, for the device."""

    @abstractmethod
    def cloud(self, question: Question, settings: S, resources: R) -> Mode:
        """Return a new Mode, the state machine of one answer, for a cloud or worker."""

    @abstractmethod
    def prepare(self, host: Host, others: Mapping[str, Counterpart], settings: S) -> R:
        """Return the Resources of `host`, with which `device` or `cloud` begins an answer.

        `others` has a device's peers by name, nothing on a cloud. Raises DragonError if a
        controller or verifier does not fit the models, or a needed peer is not connected.
        """

    def check(self, settings: S, model: str) -> None:
        """Raise ControlError for unusable files in `settings`; called before `model` is loaded."""
        return

    def next_resources(self, resources: R, records: Sequence[Record]) -> R:
        """Return the Resources of the next answer, updated from the trace `records` of the last."""
        return resources

    @abstractmethod
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        """Return the statistics that this mode adds to those of every answer, by name."""
