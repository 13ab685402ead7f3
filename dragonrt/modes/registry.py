"""The modes there are: for each its settings and the two machines that follow them.

A fifth mode is one module beside this one, a class of settings, and one entry here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dragonrt.bundled import DEFAULT_MODEL
from dragonrt.control.policies import Controller
from dragonrt.control.profiler import DecodeProfile
from dragonrt.distributions import ConformalThreshold
from dragonrt.errors import DragonError
from dragonrt.modes.disclosure import FLOOR
from dragonrt.modes.drafter import BlockDrafter
from dragonrt.modes.dragon import Dragon
from dragonrt.modes.federated import Coordinator
from dragonrt.modes.mode import Mode
from dragonrt.modes.question import Question
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.modes.speculative import (
    AcceptanceHead,
    SpeculativeDrafting,
    SpeculativeJudging,
)
from dragonrt.modes.sprinter import SprinterDrafting, SprinterJudging, TokenVerifier
from dragonrt.modes.uploading import FederatedJudging
from dragonrt.modes.verifying import BlockVerifier
from dragonrt.sampling.stopping import StoppingRule
from dragonrt.settings import assemble, entries, flag
from dragonrt.timeouts import USUAL, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a side brings to an answer beside the question and the settings.

    `members` are the weights of the other sides by name. `profile` is the side's offline decode
    profile; `controller`, `stopping`, `acceptance` and `verifier` are what was trained for its
    models; `threshold` is where C-SQS goes on from earlier answers; `rate` gives the uplink's bit/s
    at a time where it is known; `marker` are the tokens of what stands for withheld ones.
    """

    vocabulary: int
    timeouts: Timeouts = USUAL
    members: Mapping[str, float] = field(default_factory=lambda: {"cloud": 1.0})
    profile: DecodeProfile | None = None
    controller: Controller | None = None
    stopping: StoppingRule | None = None
    acceptance: AcceptanceHead | None = None
    verifier: TokenVerifier | None = None
    threshold: ConformalThreshold | None = None
    rate: Callable[[float], float] | None = None
    marker: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModeEntry:
    """One way to work together: `device` and `cloud` make its machines.

    `model` runs on the device unless its user names another; `exact` says whether the text is the
    target's, to the token; `help` is a line for people. Where the text is the others' and not drawn
    from the device's documents, too, `unread` says what these are for. `reads` completes a question
    as its device reads it.
    """

    name: str
    settings: type[Settings]
    device: Callable[[Question, Any, Resources], Mode]
    cloud: Callable[[Question, Any, Resources], Mode]
    model: str
    exact: bool
    help: str
    unread: str | None = None
    reads: Callable[[Question, Any], Question] = lambda question, settings: question


def _dragon_device(question: Question, settings: DragonSettings, resources: Resources) -> Mode:
    if settings.redacts and not resources.marker:
        raise DragonError("the model has no tokens for what is withheld: use --disclose answer")
    return Dragon(
        "device",
        question,
        settings,
        resources.vocabulary,
        resources.profile,
        resources.timeouts,
        resources.marker,
    )


def _dragon_reads(question: Question, settings: DragonSettings) -> Question:
    if question.relevance_floor is None and settings.keeps_drafts:
        return replace(question, relevance_floor=FLOOR)
    return question


def _dragon_cloud(question: Question, settings: DragonSettings, resources: Resources) -> Mode:
    return Dragon(
        "cloud", question, settings, resources.vocabulary, resources.profile, resources.timeouts
    )


def _speculative_device(
    question: Question, settings: SpeculativeSettings, resources: Resources
) -> Mode:
    if settings.stopping == "specdec++" and resources.acceptance is None:
        raise DragonError("specdec++ needs a verifier trained for the two models: --verifier")
    drafting = SpeculativeDrafting(
        question,
        settings,
        resources.vocabulary,
        resources.controller,
        resources.stopping or settings.stopping_rule,
        resources.acceptance,
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


_UNREAD = (
    "your documents only help to draft here; the text is {}, and does not answer from them: "
    "--mode dragon does"
)

MODES: Mapping[str, ModeEntry] = {
    entry.name: entry
    for entry in (
        ModeEntry(
            "dragon",
            DragonSettings,
            _dragon_device,
            _dragon_cloud,
            DEFAULT_MODEL,
            True,
            "both sides answer from their documents",
            reads=_dragon_reads,
        ),
        ModeEntry(
            "speculative",
            SpeculativeSettings,
            _speculative_device,
            _speculative_cloud,
            "dragon-draft",
            True,
            "this side drafts blocks for the cloud's model, whose text comes out",
            _UNREAD.format("the cloud's"),
        ),
        ModeEntry(
            "federated",
            FederatedSettings,
            _federated_device,
            _federated_cloud,
            "dragon-draft",
            True,
            "this side drafts blocks for the mixture of several workers",
            _UNREAD.format("the workers'"),
        ),
        ModeEntry(
            "sprinter",
            SprinterSettings,
            _sprinter_device,
            _sprinter_cloud,
            "dragon-draft",
            False,
            "a trained verifier asks the cloud about doubtful tokens only: the text is approximate",
            _UNREAD.format("the cloud's, approximately"),
        ),
    )
}


def mode_entry(name: str) -> ModeEntry:
    """The mode of that name; DragonError for one that this side does not have."""
    entry = MODES.get(name)
    if entry is None:
        raise DragonError(
            f"this side has no mode {name!r}: install the same dragonrt on both sides"
        )
    return entry


def entry_of(settings: Settings) -> ModeEntry:
    """The mode that these settings are of."""
    return next(entry for entry in MODES.values() if type(settings) is entry.settings)


def composed(mode: str, values: Mapping[str, Any]) -> tuple[Question, Settings]:
    """A question without words and the mode's settings, of their fields' values by name.

    What is left out has its default. Raises DragonError for a value that its field does not take,
    and for one that means nothing in this mode.
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
