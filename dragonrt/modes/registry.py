"""The modes: what the rest of the program knows of each, and the table of those there are.

Each of the four packages of `dragonrt.modes` calls `register`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from dragonrt.bundled import DEFAULT_DRAFT
from dragonrt.control.policies import Controller
from dragonrt.control.profiler import DecodeProfile
from dragonrt.control.verifier import TokenVerifier
from dragonrt.errors import DragonError
from dragonrt.modes.mode import Mode
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.settings import assemble, entries, flag
from dragonrt.side import Side
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Record
from dragonrt.wire.messages import SessionMessage

DEFAULT_MODE = "dragon"
UNREAD = (
    "your documents only help to draft here; the text is {}, and does not answer from them: "
    "--mode dragon does"
)


class Host(Protocol):
    """The side that prepares a mode's resources."""

    @property
    def side(self) -> Side:
        """Return whether it is the device or the cloud."""

    @property
    def vocabulary(self) -> int:
        """Return the number of entries of a distribution of its model."""

    @property
    def timeouts(self) -> Timeouts:
        """Return how long it waits for its peers."""

    @property
    def marker(self) -> tuple[int, ...]:
        """Return the tokens that another side reads for withheld ones."""

    @property
    def profile(self) -> DecodeProfile | None:
        """Return the offline decode profile of this side, if it has one."""

    def controller(self, name: str) -> Controller:
        """Return the controller of a specification. Raises ControlError."""

    def verifier(self, file: str | None, target: str) -> TokenVerifier:
        """Return the file's verifier, or the bundled one, for a target of that fingerprint.

        Raises ControlError if it does not fit.
        """


class Counterpart(Protocol):
    """Another side, of a `weight` above 0."""

    @property
    def weight(self) -> float:
        """Return its share in the mixture, relative to the other sides'."""

    @property
    def fingerprint(self) -> str:
        """Return that of its model. Raises DragonError while it is not connected."""


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


Prepare = Callable[[Host, Mapping[str, Counterpart], Any], Resources]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeEntry:
    """All that the rest of the program knows of one mode.

    `device` and `cloud` make its machines. `model` is the device's default model. If `exact`, the
    text is the target's, to the token. If `several`, the other sides are workers that the user
    names. `unread` says what the device's documents are for if the
    text is not drawn from them. `prepare` makes the resources of a side whose other sides are
    given by name, of a cloud none; `check` reads the files that settings name, before a model of a
    name is loaded; `carry` gives the resources after an answer of those records. `sends` returns
    messages as the device may send, with all that those of their types disclose, or None for any.
    `statistics` returns the figures that only this mode has.
    """

    name: str
    settings: type[Settings]
    device: Callable[[Question, Any, Any], Mode]
    cloud: Callable[[Question, Any, Any], Mode]
    exact: bool
    help: str
    several: bool = False
    model: str = DEFAULT_DRAFT
    unread: str | None = None
    prepare: Prepare = lambda host, others, settings: Resources.of(host)
    check: Callable[[Any, str], object] = lambda settings, model: None
    sends: Callable[[Any], Sequence[SessionMessage] | None] = lambda settings: None
    carry: Callable[[Any, Sequence[Record]], Resources] | None = None
    statistics: Callable[[AnswerCounts], dict[str, Any]] = lambda answer: {}


MODES: dict[str, ModeEntry] = {}
"""The modes by their names; `register` adds one."""


def register(entry: ModeEntry) -> None:
    """Add a mode."""
    MODES[entry.name] = entry


def mode_entry(name: str) -> ModeEntry:
    """Return the mode of that name; DragonError for one that this side does not have."""
    entry = MODES.get(name)
    if entry is None:
        raise DragonError(
            f"this side has no mode {name!r}: install the same dragonrt on both sides"
        )
    return entry


def entry_of(settings: Settings) -> ModeEntry:
    """Return the mode of these settings."""
    return next(entry for entry in MODES.values() if type(settings) is entry.settings)


def composed(mode: str, values: Mapping[str, Any]) -> tuple[Question, Settings]:
    """Return a question without words and the mode's settings, of field values by name.

    A field that is left out has its default. Raises DragonError for a value that its field does not
    take, and for a name that has no meaning in this mode.
    """
    settings = mode_entry(mode).settings
    asked, how = ({entry.name for entry in entries(cls)} for cls in (Question, settings))
    for name in values:
        if name not in asked | how:
            raise DragonError(f"{flag(name)} has no meaning with --mode {mode}: leave it out")
    return (
        assemble(Question, {name: values[name] for name in values if name in asked}),
        assemble(settings, {name: values[name] for name in values if name in how}),
    )
