"""The modes: what the rest of the program knows of each, and the table of those there are.

A fifth mode is one file outside the package that calls `register` (docs/adding.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dragonrt.bundled import DEFAULT_MODEL
from dragonrt.control.policies import Controller
from dragonrt.control.profiler import DecodeProfile
from dragonrt.distributions import ConformalThreshold, codec
from dragonrt.errors import DragonError
from dragonrt.modes.blocks.drafter import BlockDrafter
from dragonrt.modes.blocks.verifier import BlockVerifier
from dragonrt.modes.dragon import Terms, dragon
from dragonrt.modes.federated import Coordinator, FederatedJudging
from dragonrt.modes.mode import Mode, Prediction
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.question import Question
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.modes.speculative import SpeculativeDrafting, SpeculativeJudging, TokenVerifier
from dragonrt.modes.sprinter import SprinterDrafting, SprinterJudging
from dragonrt.settings import assemble, entries, flag
from dragonrt.side import Side
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces import statistics
from dragonrt.traces.counts import AnswerCounts
from dragonrt.wire.limits import MAX_BLOCK

DEFAULT_MODE = "dragon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a side brings to an answer beside the question and the settings.

    `members` are the weights of the other sides by name. `profile` is the side's offline decode
    profile. `controller` and `verifier` were trained for its models. `threshold` is C-SQS's
    threshold after earlier answers. `rate` gives the uplink's bit/s at a time, if known. `marker`
    are the tokens that stand for withheld ones.
    """

    vocabulary: int
    timeouts: Timeouts = USUAL
    members: Mapping[str, float] = field(default_factory=lambda: {"cloud": 1.0})
    profile: DecodeProfile | None = None
    controller: Controller | None = None
    verifier: TokenVerifier | None = None
    threshold: ConformalThreshold | None = None
    rate: Callable[[float], float] | None = None
    marker: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pace:
    """What bounds an answer's time, for who checks that it ends.

    A device drafts at most `ahead` undecided steps. One decision takes so many `forwards` of both
    sides and, one after another, `trips` of messages, behind at most `messages` others. One message
    holds at most so many `distributions`.
    """

    ahead: int
    forwards: int
    messages: int
    distributions: int
    trips: int = 2


Oracle = Callable[[Question, Any, TokenPrefix, Callable[[str], Prediction], bool], int]
"""Return the token that must follow a decided text: of the question, the settings, the text, what
the model of "device" or "cloud" says after it, and whether the device is alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeEntry:
    """All that the rest of the program knows of one mode.

    `device` and `cloud` make its machines. `model` is the device's default model. `exact`: the text
    is the target's, to the token. `help` is one line for people. `unread` says what the device's
    documents are for if the text is not drawn from them. `statistics` are the figures of an answer
    that only this mode has. `oracle` and `pace` are for those who check the mode; the package's own
    modes have their oracles in `scripts/campaign`.
    """

    name: str
    settings: type[Settings]
    device: Callable[[Question, Any, Resources], Mode]
    cloud: Callable[[Question, Any, Resources], Mode]
    pace: Callable[[Any], Pace]
    model: str
    exact: bool
    help: str
    unread: str | None = None
    statistics: Callable[[AnswerCounts], dict[str, Any]] = statistics.blocks
    oracle: Oracle | None = None


def _dragon_device(question: Question, settings: DragonSettings, resources: Resources) -> Mode:
    if settings.redacts and not resources.marker:
        raise DragonError("the model has no tokens for what is withheld: use --disclose answer")
    return _dragon("device", question, settings, resources)


def _dragon_cloud(question: Question, settings: DragonSettings, resources: Resources) -> Mode:
    return _dragon("cloud", question, settings, resources)


def _dragon(side: Side, question: Question, settings: DragonSettings, resources: Resources) -> Mode:
    vocabulary, profile, timeouts = resources.vocabulary, resources.profile, resources.timeouts
    return dragon(Terms(side, question, settings, vocabulary, profile, timeouts, resources.marker))


def _speculative_device(
    question: Question, settings: SpeculativeSettings, resources: Resources
) -> Mode:
    if settings.stopping == "specdec++" and resources.verifier is None:
        raise DragonError("specdec++ needs a verifier trained for the two models: --verifier")
    drafting = SpeculativeDrafting(
        question,
        settings,
        resources.vocabulary,
        resources.controller,
        resources.verifier,
        resources.threshold,
    )
    return BlockDrafter(
        drafting,
        settings.on_loss,
        resources.vocabulary,
        resources.timeouts,
        times_bandwidth=resources.controller is not None,
        rate=resources.rate,
    )


def _speculative_cloud(
    question: Question, settings: SpeculativeSettings, resources: Resources
) -> Mode:
    judging = SpeculativeJudging(question, settings, resources.vocabulary)
    decoding = judging.decoding if settings.decodes else None
    return BlockVerifier(question, judging, resources.vocabulary, resources.timeouts, decoding)


def _federated_device(
    question: Question, settings: FederatedSettings, resources: Resources
) -> Mode:
    return Coordinator(
        question, settings, resources.vocabulary, resources.members, resources.timeouts
    )


def _federated_cloud(question: Question, settings: FederatedSettings, resources: Resources) -> Mode:
    judging = FederatedJudging(question, settings, resources.vocabulary)
    return BlockVerifier(question, judging, resources.vocabulary, resources.timeouts)


def _sprinter_device(question: Question, settings: SprinterSettings, resources: Resources) -> Mode:
    if resources.verifier is None:
        raise DragonError("mode sprinter needs a verifier trained for the two models: --verifier")
    drafting = SprinterDrafting(question, settings, resources.vocabulary, resources.verifier)
    return BlockDrafter(drafting, settings.on_loss, resources.vocabulary, resources.timeouts)


def _sprinter_cloud(question: Question, settings: SprinterSettings, resources: Resources) -> Mode:
    judging = SprinterJudging(question, settings, resources.vocabulary)
    return BlockVerifier(question, judging, resources.vocabulary, resources.timeouts)


def _dragon_pace(settings: DragonSettings) -> Pace:
    # A forward on a dead line, and one on the decided text; then a Draft and a Target.
    # A race may lack entries on both sides, and those of one may wait for the other's.
    drafts = 2 * settings.run_ahead * (1 + settings.most_branches)
    return Pace(settings.run_ahead, 2, drafts, 1, 2 if codec(settings.codec, 2).complete else 6)


def _speculative_pace(settings: SpeculativeSettings) -> Pace:
    # What is under way is drafted anew behind a refusal, and verified.
    length, blocks = settings.length, settings.outstanding
    longest = length if settings.controller is None else MAX_BLOCK
    return Pace(blocks * (longest + 1) - 1, 2 + length, 2 * blocks, length)


def _federated_pace(settings: FederatedSettings) -> Pace:
    # A block, and its verification behind one that came too late.
    block = settings.block_tokens
    return Pace(max(1, block), 3 + block, 4, block + 1)


_UNREAD = (
    "your documents only help to draft here; the text is {}, and does not answer from them: "
    "--mode dragon does"
)

MODES: dict[str, ModeEntry] = {}
"""The modes by their names; `register` adds one."""


def register(entry: ModeEntry) -> None:
    """Add a mode. Call it before `dragonrt.cli.main`, on both sides."""
    MODES[entry.name] = entry


register(
    ModeEntry(
        name=DEFAULT_MODE,
        settings=DragonSettings,
        device=_dragon_device,
        cloud=_dragon_cloud,
        pace=_dragon_pace,
        model=DEFAULT_MODEL,
        exact=True,
        help="both sides answer from their documents",
        statistics=statistics.dragon,
    )
)
register(
    ModeEntry(
        name="speculative",
        settings=SpeculativeSettings,
        device=_speculative_device,
        cloud=_speculative_cloud,
        pace=_speculative_pace,
        model="dragon-draft",
        exact=True,
        help="this side drafts blocks, the cloud's model verifies them",
        unread=_UNREAD.format("the cloud's"),
        statistics=statistics.speculative,
    )
)
register(
    ModeEntry(
        name="federated",
        settings=FederatedSettings,
        device=_federated_device,
        cloud=_federated_cloud,
        pace=_federated_pace,
        model="dragon-draft",
        exact=True,
        help="this side drafts blocks, several workers verify them together",
        unread=_UNREAD.format("the workers'"),
        statistics=statistics.federated,
    )
)
register(
    ModeEntry(
        name="sprinter",
        settings=SprinterSettings,
        device=_sprinter_device,
        cloud=_sprinter_cloud,
        pace=lambda settings: Pace(1, 3, 2, 1),
        model="dragon-draft",
        exact=False,
        help="a trained verifier accepts drafts: the text is approximate",
        unread=_UNREAD.format("the cloud's, approximately"),
        statistics=statistics.sprinter,
    )
)


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
