"""What a notice means is in its kind and its reason: a notice without a word breaks a law alike."""

from dataclasses import replace

import pytest

from dragonrt.node.answers.client_session import Answer
from dragonrt.testing.faults import Schedule
from dragonrt.traces.events import Noticed, NoticeKind
from dragonrt.wire.reasons import Reason
from scripts.campaign.exploration import explore_one
from scripts.campaign.invariants import BREACHES, EXPECTED
from scripts.campaign.scenario import Scenario

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
