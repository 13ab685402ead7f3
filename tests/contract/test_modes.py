"""All modes of the package keep the contract that a mode from outside is held to."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.testing.mode_contract import CHECKS, Case, ContractError, asked, check_texts
from dragonrt.testing.scripted import PrefixVerifier, ScriptedModel
from scripts.campaign.oracle import Attendance, oracle

SETTINGS: Mapping[str, Settings] = {
    "dragon": DragonSettings(codec="topp:0.95", run_ahead=8, on_loss="wait"),
    "greedy": DragonSettings(aggregator=Aggregator.GREEDY, codec="race", on_loss="wait"),
    "speculative": SpeculativeSettings(block_tokens=3, on_loss="wait"),
    "rejection": SpeculativeSettings(rule="rejection", codec="ksqs:6:40", on_loss="wait"),
    "federated": FederatedSettings(codec="topk:4:residual", require_all=True),
    "sprinter": SprinterSettings(codec="topk:8:renorm", on_loss="wait"),
}


def text(question: Question, settings: Settings, models: Mapping[str, ScriptedModel]) -> list[int]:
    weights = dict.fromkeys([name for name in models if name != "device"], 0.5)
    course = Attendance(weights=lambda step: weights)
    return oracle(question, settings, models, course, PrefixVerifier())


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_mode_keeps_the_contract(name: str, check: Callable[[Case], None]) -> None:
    settings = SETTINGS[name]
    check(Case(entry_of(settings), settings, text))


def test_another_text_breaks_it() -> None:
    settings = SETTINGS["speculative"]
    other = replace(asked(0)[0], seed=99)
    with pytest.raises(ContractError):
        check_texts(Case(entry_of(settings), settings, lambda question, *rest: text(other, *rest)))
