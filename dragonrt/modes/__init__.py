"""The four modes to decide tokens (dragon, speculative, federated, sprinter), found by name."""

from collections.abc import Mapping
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.modes.dragon import DragonMode
from dragonrt.modes.federated import FederatedMode
from dragonrt.modes.question import Question
from dragonrt.modes.settings import ModeEntry, Settings
from dragonrt.modes.speculative import SpeculativeMode
from dragonrt.modes.sprinter import SprinterMode
from dragonrt.settings import assemble, entries, flag

DEFAULT_MODE = DragonMode.settings.mode

MODES: dict[str, ModeEntry[Any, Any]] = {
    each.name: each for each in (DragonMode(), SpeculativeMode(), FederatedMode(), SprinterMode())
}


def mode_entry(name: str) -> ModeEntry[Any, Any]:
    """Return a mode's ModeEntry, which makes its state machines. Raises DragonError if unknown."""
    entry = MODES.get(name)
    if entry is None:
        raise DragonError(
            f"this side has no mode {name!r}: install the same dragonrt on both sides"
        )
    return entry


def entry_of(settings: Settings) -> ModeEntry[Any, Any]:
    """Return the ModeEntry, which makes state machines, of the mode that `settings` configure."""
    return MODES[settings.mode]


def question_and_settings(mode: str, values: Mapping[str, Any]) -> tuple[Question, Settings]:
    """Return the Question and the Settings of `mode`, made from a user's options.

    `values` maps names of fields of both classes to values; other fields get their defaults. Raises
    DragonError for a name that is no field, and for a value that its field does not permit.
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
