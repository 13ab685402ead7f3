"""What links, late workers and lost ones cost in time; `observe` holds texts to their oracles."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.faults import Cut, Schedule, Stall
from dragonrt.testing.loop import run
from dragonrt.testing.scripted import Script
from dragonrt.traces import events
from dragonrt.traces.events import NoticeKind
from scripts.campaign.exploration import Observed, Stage, observe
from scripts.campaign.scenario import Request, Scenario

QUESTION = Question(prompt="0", seed=5, sampler=Sampler(0.9), max_tokens=60)
SCRIPT = Script(1, 16, sharpness=2.0, disagreement=0.5, stop=0.0)
SLOWEST = FederatedSettings(codec="topk:4:residual", block_tokens=2)


def seconds(found: Observed) -> float:
    """Between the first token and the last."""
    times = [t for t, _ in found.answer.decisions]
    return times[-1] - times[0]


# One other side.


def test_speculation_hides_the_round_trip() -> None:
    """Two equal sides and a round trip of 300 ms: all but the first are hidden."""
    steady = Schedule(1, latency_s=0.15, device_decode_s=0.05, cloud_decode_s=0.05)
    question = replace(QUESTION, max_tokens=24)
    took = {}
    for aggregator in (Aggregator.SYNC, Aggregator.BOTH):
        settings = DragonSettings(aggregator=aggregator)
        asked = Request(question, settings, replace(SCRIPT, disagreement=0.0))
        (found,) = run(observe(Scenario("dragon", 1, ((steady,),), (asked,))))
        took[aggregator] = found.ended_s - found.asked_s
    assert took[Aggregator.SYNC] > 24 * 0.3
    assert took[Aggregator.BOTH] < 24 * 2 * 0.05 + 0.3, "no forward takes twice its mean"


def test_the_sides_prepare_at_the_same_time() -> None:
    slow = Schedule(1, device_prepare_s=5.0, cloud_prepare_s=5.0)

    def first_token_s(schedule: Schedule) -> float:
        asked = Request(QUESTION, SpeculativeSettings(), SCRIPT)
        (found,) = run(observe(Scenario("speculative", 1, ((schedule,),), (asked,))))
        return found.answer.decisions[0][0] - found.asked_s

    one = first_token_s(replace(slow, cloud_prepare_s=0.0))
    other = first_token_s(replace(slow, device_prepare_s=0.0))
    assert first_token_s(slow) < max(one, other) + 1.0


# Several workers.


def quick(seed: int, *faults: Cut | Stall) -> Schedule:
    return Schedule(seed, latency_s=0.02, device_decode_s=0.001, cloud_decode_s=0.01, faults=faults)


def answer(
    schedules: Sequence[Schedule], settings: FederatedSettings, max_tokens: int = 60
) -> Observed:
    """By workers of these links; nothing else is wrong than that they are slow."""

    async def patiently(stage: Stage) -> None:
        stage.fault(100.0)

    asked = Request(replace(QUESTION, max_tokens=max_tokens), settings, SCRIPT)
    weights = (0.5, 0.3, 0.2)[: len(schedules)]
    scene = Scenario("federated", 1, (tuple(schedules),), (asked,), weights)
    (found,) = run(observe(scene, patiently))
    assert len(found.answer.tokens) == max_tokens
    return found


def rounds(found: Observed) -> list[tuple[tuple[str, ...], float]]:
    """Who was missing, and how long the round took."""
    told = [record.event for record in found.answer.records]
    waits = [event.waited for event in told if isinstance(event, events.BlockJudged)]
    missing = [event.missing for event in told if isinstance(event, events.RoundDecided)]
    return list(zip(missing, waits, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("deadline_s", [0.3, 2.0])
def test_a_stalled_worker_costs_one_deadline_and_no_token(deadline_s: float) -> None:
    whole = answer([quick(n) for n in range(3)], SLOWEST)
    settings = replace(SLOWEST, quorum_deadline=deadline_s)
    found = answer([quick(0), quick(1), quick(2, Stall(0.5, 1000.0))], settings)
    told = rounds(found)
    missing = [who == ("worker 2",) for who, _ in told]
    left_at = missing.index(True)
    assert left_at > 0
    assert all(missing[left_at:])
    assert told[left_at][1] == pytest.approx(deadline_s, abs=0.01)
    assert max(waited for _, waited in told[left_at + 1 :]) < 0.2
    assert seconds(found) == pytest.approx(seconds(whole) + deadline_s, abs=0.4)
    (notice,) = found.answer.notices
    assert notice.kind is NoticeKind.LATE
    assert "worker 2" in notice.text


def test_a_lost_worker_costs_no_deadline_and_rejoins() -> None:
    settings = replace(SLOWEST, quorum_deadline=5.0)
    found = answer([quick(0), quick(1, Cut("cloud", after_s=0.5))], settings)
    missing = [bool(who) for who, _ in rounds(found)]
    assert any(missing)
    assert not missing[0]
    assert not missing[-1]
    assert max(waited for _, waited in rounds(found)) < 1
    kinds = [notice.kind for notice in found.answer.notices]
    assert kinds == [NoticeKind.ABSENT, NoticeKind.BACK]


def test_who_requires_all_is_told_whom_the_answer_waits_for() -> None:
    settings = replace(SLOWEST, require_all=True)
    found = answer([quick(0), quick(1, Cut("cloud", after_s=0.5))], settings)
    assert not any(who for who, _ in rounds(found))
    kinds = [notice.kind for notice in found.answer.notices]
    assert kinds == [NoticeKind.WAITING, NoticeKind.BACK]
    assert all("worker 1" in notice.text for notice in found.answer.notices)


def test_a_slow_worker_gets_one_block_at_a_time() -> None:
    """Its first uploads are late; the deadline by measured round trips then includes it."""
    slow = replace(quick(1), cloud_decode_s=2.0)
    assert not rounds(answer([quick(0), slow], SLOWEST))[-1][0]
    told = rounds(answer([quick(0), slow], replace(SLOWEST, quorum_deadline=0.1)))
    assert sum(bool(who) for who, _ in told) > len(told) / 2


def test_the_first_round_waits_for_everyone_to_read_the_question() -> None:
    """Else the text's first tokens would be those of whoever reads fastest."""
    slow_draft = replace(quick(0), device_decode_s=0.1)
    found = answer([slow_draft, replace(quick(1), latency_s=0.4)], SLOWEST)
    assert not any(who for who, _ in rounds(found))
    assert not found.answer.notices


@pytest.mark.slow
def test_a_worker_that_returns_late_resumes_from_decided_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragonrt.modes.federated.machine.MAX_BLOCK", 16)
    settings = replace(SLOWEST, quorum_deadline=0.2)
    found = answer([quick(0), quick(1, Stall(0.3, 2.0))], settings, max_tokens=120)
    told = [record.event for record in found.answer.records]
    absent = [
        event.step for event in told if isinstance(event, events.RoundDecided) and event.missing
    ]
    assert absent[-1] - absent[0] > 16, "more than a block says of the decided tokens"
    assert not rounds(found)[-1][0]
