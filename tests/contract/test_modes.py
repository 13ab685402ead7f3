"""All modes of the package keep the contract that a mode from outside is held to."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dragonrt.modes.blocks.messages import BLOCK
from dragonrt.modes.dragon.messages import SENT
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.oracle import Asked, Decide
from dragonrt.modes.registry import entry_of
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.testing.mode_contract import (
    CHECKS,
    Case,
    ContractError,
    asked,
    check_ledger,
    check_texts,
)
from dragonrt.wire.messages import SessionMessage


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_the_mode_keeps_the_contract(check: Callable[[Case], None], waiting: Settings) -> None:
    check(Case(entry_of(waiting), waiting))


def test_another_text_breaks_it() -> None:
    settings, other = SpeculativeSettings(on_loss="wait"), replace(asked(0)[0], seed=99)
    entry = entry_of(settings)

    def oracle(asked: Asked, how: SpeculativeSettings) -> Decide:
        return entry.oracle(replace(asked, question=other), how)

    case = Case(replace(entry, oracle=oracle), settings)
    with pytest.raises(ContractError):
        check_texts(case)


@pytest.mark.parametrize("sends", [(), (BLOCK,), SENT[1:2]], ids=["nothing", "blocks", "targets"])
def test_what_the_preview_does_not_name_breaks_it(sends: Sequence[SessionMessage]) -> None:
    settings = DragonSettings(on_loss="wait")
    entry = replace(entry_of(settings), sends=lambda _: sends)
    with pytest.raises(ContractError):
        check_ledger(Case(entry, settings))
