"""All modes keep their contract."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from typing_extensions import override

from dragonrt.modes.blocks.messages import BLOCK
from dragonrt.modes.dragon import DragonMode
from dragonrt.modes.dragon.drafts import SENT
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.testing.scripted import Script
from dragonrt.wire.messages import SessionMessage
from tests.oracles.mode_contract import (
    CHECKS,
    Case,
    ContractError,
    asked,
    check_ledger,
    check_texts,
)


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


@dataclass
class Unforeseen(DragonMode):
    """Names other messages than are sent."""

    named: Sequence[SessionMessage]

    @override
    def sends(self, settings: DragonSettings) -> Sequence[SessionMessage]:
        return self.named


@pytest.mark.parametrize("sends", [(), (BLOCK,), SENT[1:2]], ids=["nothing", "blocks", "targets"])
def test_what_the_preview_does_not_name_breaks_it(sends: Sequence[SessionMessage]) -> None:
    with pytest.raises(ContractError):
        check_ledger(Case(Unforeseen(sends), DragonSettings(on_loss="wait")))
