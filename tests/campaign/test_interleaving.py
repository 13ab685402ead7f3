"""Inputs in any order, laws of notices: they hold, and what breaks them is found."""

from dataclasses import replace
from typing import Any

import pytest

from dragonrt.modes import MODES
from dragonrt.modes.dragon.drafts import Redacted
from dragonrt.modes.federated.machine import Coordinator
from dragonrt.modes.federated.workers import Worker
from dragonrt.modes.mode import Effects
from dragonrt.modes.speculative.machine import SpeculativeDrafting
from dragonrt.modes.sprinter import SprinterDrafting
from dragonrt.modes.verifier import BlockVerifier
from dragonrt.node.answers.client_session import Answer
from dragonrt.testing.faults import Schedule
from dragonrt.traces.events import Noticed, NoticeKind
from dragonrt.wire.reasons import Reason
from scripts.campaign.exploration import explore_one
from scripts.campaign.interleaving import Interleaving
from scripts.campaign.invariants import BREACHES, EXPECTED, ViolationError
from scripts.campaign.scenario import Scenario


def first_violation(mode: str, runs: int) -> str | None:
    for seed in range(runs):
        scenario = Scenario.draw(seed, mode)
        try:
            Interleaving(scenario, scenario.requests[0]).run()
        except ViolationError as error:
            return str(error)
        except Exception as error:
            return type(error).__name__
    return None


@pytest.mark.parametrize("mode", MODES)
def test_no_order_changes_a_token(mode: str) -> None:
    assert first_violation(mode, 8) is None


def test_a_seed_repeats_its_order_and_another_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: list[str] = []
    for name in ("_deliver", "_work_off", "_part"):
        right = getattr(Interleaving, name)

        def noted(self: Interleaving, *of: Any, name: str = name, right: Any = right) -> None:
            inputs.append(name)
            right(self, *of)

        monkeypatch.setattr(Interleaving, name, noted)
    orders = []
    for seed in (0, 0, 1):
        inputs.clear()
        scenario = Scenario.draw(seed, "speculative")
        Interleaving(scenario, scenario.requests[0]).run()
        orders.append(list(inputs))
    assert orders[0] == orders[1] != orders[2]


def of_any_round(coordinator: Coordinator) -> list[Worker]:
    return [each for each in coordinator._asked or () if each.received is not None]


def nothing(*_: Any) -> Effects:
    """It does not hear of it."""
    return Effects()


@pytest.mark.parametrize(
    ("mode", "broken", "name", "defect"),
    [
        ("dragon", Redacted, "place", lambda read, step: (step, read._text.hashes[step])),
        ("speculative", BlockVerifier, "_take_next", nothing),
        ("speculative", SpeculativeDrafting, "rewind", nothing),
        ("federated", Coordinator, "_uploaded", of_any_round),
        ("sprinter", SprinterDrafting, "rewind", nothing),
    ],
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, mode: str, broken: Any, name: str, defect: Any
) -> None:
    monkeypatch.setattr(broken, name, defect)
    assert first_violation(mode, 60) is not None


# What a notice means is in its kind and its reason, not in its words.


DRAWN = Scenario.draw_plain(0, "speculative")
QUIET = replace(DRAWN, schedules=((Schedule(1),),), requests=DRAWN.requests[:1], stall=None)


def violation(monkeypatch: pytest.MonkeyPatch, notice: Noticed) -> str | None:
    """What is said of an answer with that notice, which nothing disturbed."""
    monkeypatch.setattr(Answer, "notices", property(lambda answer: [notice]))
    return explore_one(QUIET).violation


@pytest.mark.parametrize("kind", NoticeKind)
def test_a_notice_without_need_is_found_by_its_kind(
    kind: NoticeKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (violation(monkeypatch, Noticed(kind, "")) is None) is (kind in EXPECTED)


@pytest.mark.parametrize("reason", sorted(BREACHES))
def test_a_broken_protocol_is_found_by_the_reason(
    reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert violation(monkeypatch, Noticed(NoticeKind.BACK, "", reason)) is not None


def test_a_cloud_that_steers_may_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert violation(monkeypatch, Noticed(NoticeKind.ALONE, "", Reason.STEERED)) is None
