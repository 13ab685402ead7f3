"""All modes of the package keep the contract that a mode from outside is held to."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter.settings import SprinterSettings
from dragonrt.testing.mode_contract import (
    CHECKS,
    VOCABULARY,
    Case,
    ContractError,
    asked,
    check_replays,
    check_texts,
)
from dragonrt.testing.scripted import PrefixVerifier, ScriptedModel
from dragonrt.traces import packed
from scripts.campaign.oracle import Attendance, oracle, redacted_oracle
from scripts.campaign.scenario import MARKER_TOKENS


def text(question: Question, settings: Settings, models: Mapping[str, ScriptedModel]) -> list[int]:
    if isinstance(settings, DragonSettings) and settings.keeps_drafts:
        marker = MARKER_TOKENS if settings.redacts else ()
        return [token for token, _ in redacted_oracle(question, settings, models, marker)]
    weights = {name: 0.5 for name in models if name != "device"}
    course = Attendance(weights=lambda step: weights)
    return oracle(question, settings, models, course, PrefixVerifier())


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_the_mode_keeps_the_contract(check: Callable[[Case], None], waiting: Settings) -> None:
    check(Case(entry_of(waiting), waiting, text))


@pytest.mark.parametrize(
    "settings",
    [
        DragonSettings(codec="race", on_loss="wait"),
        DragonSettings(codec="dense:fp32", on_loss="wait"),
        SpeculativeSettings(on_loss="wait"),
        FederatedSettings(codec="dense:fp16", require_all=True),
        SprinterSettings(codec="dense:fp32", on_loss="wait"),
    ],
    ids=["race", "dragon", "speculative", "federated", "sprinter"],
)
def test_a_trace_without_long_arrays_replays(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_vocabulary = 8 * VOCABULARY
    monkeypatch.setattr(packed, "LONGEST_ARRAY", whole_vocabulary - 1)
    check_replays(Case(entry_of(settings), settings, text))


def test_another_text_breaks_it() -> None:
    settings, other = SpeculativeSettings(on_loss="wait"), replace(asked(0)[0], seed=99)
    case = Case(entry_of(settings), settings, lambda question, *rest: text(other, *rest))
    with pytest.raises(ContractError):
        check_texts(case)
