"""All modes of the package keep the contract that a mode from outside is held to."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import DragonSettings, Settings, SpeculativeSettings
from dragonrt.testing.mode_contract import CHECKS, Case, ContractError, asked, check_texts
from dragonrt.testing.scripted import PrefixVerifier, ScriptedModel
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


def test_another_text_breaks_it() -> None:
    settings, other = SpeculativeSettings(on_loss="wait"), replace(asked(0)[0], seed=99)
    case = Case(entry_of(settings), settings, lambda question, *rest: text(other, *rest))
    with pytest.raises(ContractError):
        check_texts(case)
