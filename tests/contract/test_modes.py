"""All modes keep their contract."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from typing_extensions import override

from dragonrt.modes import entry_of
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.testing.scripted import Script
from tests.oracles.mode_contract import CHECKS, Case, ContractError, asked, check_texts


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_the_mode_keeps_the_contract(check: Callable[[Case], None], waiting: Settings) -> None:
    check(Case(entry_of(waiting), waiting))


def test_another_text_breaks_it() -> None:
    settings, other = SpeculativeSettings(on_loss="wait"), replace(asked(0)[0], seed=99)

    class Wrong(Case):
        @override
        def right(self, question: Question, script: Script) -> list[int]:
            return super().right(other, script)

    with pytest.raises(ContractError):
        check_texts(Wrong(entry_of(settings), settings))
