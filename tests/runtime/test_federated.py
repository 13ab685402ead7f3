"""A coordinator and its workers in virtual time: one text, whatever the links and who is missing.

`loop.run` fails on tasks left behind, on exceptions nobody handled and on dead-locks.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.modes import serving
from dragonrt.runtime.modes.blocks import ReadBlock, Uploads
from dragonrt.runtime.modes.federated import (
    Answer,
    FederatedPlan,
    FederatedVerifying,
    FederationError,
)
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.plan import PATIENCE_S
from dragonrt.runtime.predictor import NextToken
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.federation import (
    WorkerScript,
    federated_oracle,
    federated_rounds,
    simulated_federation,
)
from numpy.typing import NDArray
from scipy import stats

from dragonrt.distributions import CodecError
from dragonrt.sampling import Sampler
from dragonrt.side import Side
from dragonrt.simulation.faults import Cut, Stall
from dragonrt.simulation.loop import run
from dragonrt.simulation.schedule import Schedule

TOKENS = 14
WEIGHTS = (0.5, 0.3, 0.2)


class Events:
    """A trace that keeps the rounds, each with its verdict."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, Any]] = []
        self._verdict: dict[str, Any] = {}

    def event(self, session: int, event: str, **fields: Any) -> None:
        if event == "verdict":
            self._verdict = fields
        elif event == "round":
            self.rounds.append(self._verdict | fields)

    def of(self, peer: str) -> "Events":
        return self

    def weights(self, step: int) -> dict[int, float]:
        """The weights, by the worker's number, of the round that decided this step."""
        decided = next(
            each for each in self.rounds if each["step"] <= step < each["step"] + each["decided"]
        )
        return {int(name.split()[1]): weight for name, weight in decided["weights"].items()}


def draft_script(seed: int) -> Script:
    return Script(seed % 7, vocabulary=16, sharpness=2.0, disagreement=0.5)


def scripts(seed: int, workers: int = 3) -> list[Script]:
    return [
        WorkerScript(seed % 7, vocabulary=16, sharpness=2.0, disagreement=0.5, worker=number)
        for number in range(workers)
    ]


def plan_of(seed: int) -> FederatedPlan:
    return FederatedPlan(
        seed=seed % 50,
        sampler=Sampler(0.9 * (seed % 3 > 0)),
        rule=("coupled", "rejection")[seed % 2],
        codec=("topk:4:residual", "topk:3:renorm", "dense:fp16")[seed // 2 % 3],
        weighing=("fixed", "relevance")[seed // 4 % 2],
        block_tokens=(4, 0, 8, 1)[seed // 3 % 4],
        max_tokens=TOKENS,
        stop_tokens=(0,),
    )


async def answer(
    schedules: Sequence[Schedule],
    plan: FederatedPlan,
    seed: int,
    events: Events | None = None,
    shown: list[int] | None = None,
) -> Answer:
    """One answer from start to end; afterwards nothing is left of it on the workers."""
    workers = len(schedules)
    tokens: list[int] = [] if shown is None else shown
    async with simulated_federation(
        schedules, scripts(seed, workers), draft_script(seed), WEIGHTS[:workers], events
    ) as federation:
        given = await federation.asking(plan, tokens.append).ask("who?")
    for cloud in federation.clouds:
        await cloud.wait_idle()
        assert cloud.sessions == 0
    assert tokens == given.tokens
    return given


def check(given: Answer, plan: FederatedPlan, seed: int, events: Events, workers: int = 3) -> None:
    """The text is what the recorded weights give."""
    assert given.finish in (Finish.STOP, Finish.LENGTH)
    right = federated_rounds(plan, scripts(seed, workers), draft_script(seed), events.weights)
    assert given.tokens == right
    if plan.rule == "coupled":
        assert right == federated_oracle(plan, scripts(seed, workers), events.weights)
    for each in events.rounds:
        assert sum(each["weights"].values()) == pytest.approx(1)
        present = {int(name.split()[1]) for name in each["weights"]}
        missing = {int(name.split()[1]) for name in each["missing"]}
        assert present | missing == set(range(workers))
        assert not present & missing
        if plan.weighing == "fixed":
            left = sum(WEIGHTS[number] for number in present)
            for name, weight in each["weights"].items():
                assert weight == pytest.approx(WEIGHTS[int(name.split()[1])] / left)
    assert given.counts.rounds == len(events.rounds)
    absences = sum(len(each["missing"]) for each in events.rounds)
    assert sum(given.counts.missing.values()) == absences


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_links_and_speeds_change_nothing(block: int) -> None:
    for seed in range(15 * block, 15 * (block + 1)):
        schedules = [Schedule.draw(3 * seed + number) for number in range(3)]
        plan, events = replace(plan_of(seed), require_all=True), Events()
        given = run(answer(schedules, plan, seed, events))
        assert not given.counts.missing, seed
        assert not given.notices
        assert [source.name for source in given.cloud_sources] == ["cloud.txt"]
        check(given, plan, seed, events)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("require_all", [False, True])
def test_lost_and_stalled_connections(require_all: bool, block: int) -> None:
    missed = 0
    for seed in range(20 * block, 20 * (block + 1)):
        schedules = [
            Schedule.draw(3 * seed + number, cuts=(seed + number) % 3, stalls=number == 2)
            for number in range(3)
        ]
        plan, events = replace(plan_of(seed), require_all=require_all), Events()
        given = run(answer(schedules, plan, seed, events))
        check(given, plan, seed, events)
        missed += sum(given.counts.missing.values())
        if require_all:
            assert not given.counts.missing, seed
    assert bool(missed) is not require_all


def quick(seed: int = 0, **more: Any) -> Schedule:
    return Schedule(seed, latency_s=0.02, device_decode_s=0.001, cloud_decode_s=0.01, **more)


PLAN = FederatedPlan(
    seed=5, sampler=Sampler(0.9), codec="topk:4:residual", block_tokens=2, max_tokens=60
)


async def timed(
    schedules: Sequence[Schedule], plan: FederatedPlan, events: Events
) -> tuple[Answer, float]:
    """The answer and the seconds between its first token and its last."""
    given = await answer(schedules, plan, 1, events)
    times = [decision.time_s for decision in given.decisions]
    return given, times[-1] - times[0]


@pytest.mark.slow
def test_a_stalled_worker_costs_one_deadline_and_no_token() -> None:
    _, whole_s = run(timed([quick(n) for n in range(3)], PLAN, Events()))
    stalled = quick(2, faults=(Stall(0.5, 1000.0),))
    for deadline_s in (0.3, 2.0):
        plan, events = replace(PLAN, quorum_deadline_s=deadline_s), Events()
        given, seconds = run(timed([quick(0), quick(1), stalled], plan, events))
        check(given, plan, 1, events)
        assert len(given.tokens) == 60
        missing = [each["missing"] == ["worker 2"] for each in events.rounds]
        left_at = missing.index(True)
        assert left_at > 0
        assert all(missing[left_at:])
        waits = [each["waited"] for each in events.rounds]
        assert waits[left_at] == pytest.approx(deadline_s, abs=0.01)
        assert max(waits[left_at + 1 :]) < 0.2
        assert seconds == pytest.approx(whole_s + deadline_s, abs=0.3)
        assert len(given.notices) == 1
        assert "worker 2" in given.notices[0]
        assert "deadline" in given.notices[0]


def test_a_lost_connection_costs_no_deadline_and_the_worker_rejoins() -> None:
    cut = quick(1, faults=(Cut("cloud", after_s=0.5),))
    plan, events = replace(PLAN, quorum_deadline_s=5.0), Events()
    given, _ = run(timed([quick(0), cut], plan, events))
    check(given, plan, 1, events, workers=2)
    missing = [bool(each["missing"]) for each in events.rounds]
    assert any(missing)
    assert not missing[0]
    assert not missing[-1]
    assert max(each["waited"] for each in events.rounds) < 1
    assert "takes no part" in given.notices[0]
    assert "takes part again" in given.notices[1]


def test_who_requires_all_is_told_whom_the_answer_waits_for() -> None:
    cut = quick(1, faults=(Cut("cloud", after_s=0.5),))
    plan, events = replace(PLAN, require_all=True), Events()
    given, _ = run(timed([quick(0), cut], plan, events))
    check(given, plan, 1, events, workers=2)
    assert not given.counts.missing
    assert given.notices[0].startswith("waiting for worker 1 at token ")
    assert given.notices[1].startswith("worker 1 takes part again")
    assert len(given.notices) == 2


def test_a_slow_worker_gets_one_block_at_a_time_and_is_then_waited_for() -> None:
    """Its first uploads are late; the deadline by measured round trips then includes it."""
    slow = replace(quick(1), cloud_decode_s=2.0)
    events = Events()
    given, _ = run(timed([quick(0), slow], PLAN, events))
    check(given, PLAN, 1, events, workers=2)
    missing = [bool(each["missing"]) for each in events.rounds]
    assert not missing[-1]
    assert given.counts.missing.get("worker 1", 0) == sum(missing)
    fixed, events = replace(PLAN, quorum_deadline_s=0.1), Events()
    given, _ = run(timed([quick(0), slow], fixed, events))
    check(given, fixed, 1, events, workers=2)
    assert sum(bool(each["missing"]) for each in events.rounds) > len(events.rounds) / 2


def test_the_first_round_waits_for_everyone_to_read_the_question() -> None:
    """Else the text's first tokens would be those of whoever reads fastest."""
    events = Events()
    slow_draft = replace(quick(0), device_decode_s=0.1)
    given, _ = run(timed([slow_draft, replace(quick(1), latency_s=0.4)], PLAN, events))
    check(given, PLAN, 1, events, workers=2)
    assert not given.counts.missing
    assert not given.notices


@pytest.mark.slow
def test_a_worker_that_was_away_for_long_begins_again_from_the_decided_text() -> None:
    away = quick(1, faults=(Stall(0.3, 12.0),))  # more than MAX_BLOCK tokens
    plan = replace(PLAN, quorum_deadline_s=0.2, max_tokens=900)
    events = Events()
    given, _ = run(timed([quick(0), away], plan, events))
    check(given, plan, 1, events, workers=2)
    absent = [each for each in events.rounds if each["missing"]]
    assert absent[-1]["step"] - absent[0]["step"] > 256
    assert not events.rounds[-1]["missing"]


def test_without_any_worker_the_answer_ends_with_one_line() -> None:
    gone = [quick(n, faults=(Stall(0.4, 1000.0),)) for n in range(2)]
    shown: list[int] = []

    async def asked() -> float:
        with pytest.raises(FederationError, match=r"worker 0: .*; worker 1: "):
            await answer(gone, PLAN, 1, shown=shown)
        return asyncio.get_running_loop().time()

    assert run(asked()) < 2 * PATIENCE_S
    assert shown


def test_all_are_required_and_one_never_answers() -> None:
    schedules = [quick(0), quick(1, faults=(Stall(0.4, 1000.0),))]

    async def asked() -> None:
        with pytest.raises(FederationError, match="worker 1: "):
            await answer(schedules, replace(PLAN, require_all=True), 1)

    run(asked())


def test_an_answer_can_be_stopped_between_two_tokens() -> None:
    async def asked() -> Answer:
        schedules = [quick(0), quick(1)]
        async with simulated_federation(
            schedules, scripts(1, 2), draft_script(1), (1.0, 1.0)
        ) as federation:
            asking = federation.asking(PLAN, lambda token: seen.append(token) or stop())  # type: ignore[func-returns-value]
            seen: list[int] = []

            def stop() -> None:
                if len(seen) == 7:
                    asking.stop()

            return await asking.ask("who?")

    given = run(asked())
    assert given.finish is Finish.CANCELLED
    assert len(given.tokens) == 7


def test_a_worker_refuses_a_codec_without_distributions() -> None:
    FederatedVerifying(BlockPlan("federated", 0, Sampler(), codec="topk:4:renorm"), 16)
    with pytest.raises(CodecError, match="codec ids sends no distributions"):
        FederatedVerifying(BlockPlan("federated", 0, Sampler(), codec="ids"), 16)


@pytest.mark.parametrize("payloads", ["as many as due", "too few"])
def test_an_upload_that_cannot_be_read_ends_that_workers_session_alone(
    payloads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FederatedVerifying] = []

    class Corrupt(FederatedVerifying):
        """The first one that is made breaks its third upload."""

        blocks = 0

        def answer(self, block: ReadBlock, said: Sequence[NextToken]) -> Uploads:
            made.append(self)
            self.blocks += 1
            uploads = super().answer(block, said)
            if self is not made[0] or self.blocks != 3:
                return uploads
            if payloads == "too few":
                return replace(uploads, payloads=uploads.payloads[1:])
            return replace(uploads, payloads=(b"\xff" * 9,) * len(uploads.payloads))

    monkeypatch.setitem(serving.VERIFYING, "federated", Corrupt)
    events = Events()
    given, _ = run(timed([quick(0), quick(1)], PLAN, events))
    check(given, PLAN, 1, events, workers=2)
    missing = [len(each["missing"]) for each in events.rounds]
    assert missing == [0, 0, *[1] * (len(missing) - 2)]
    assert len(given.tokens) == PLAN.max_tokens
    assert len(given.notices) == 1
    assert ("distributions for a block" if payloads == "too few" else "payload") in given.notices[0]


class Fixed(Script):
    """The same distribution behind every text."""

    def distribution(self, side: Side, prefix_hash: int) -> NDArray[np.float64]:
        p: NDArray[np.float64] = np.array([[5, 3, 1, 1], [1, 3, 5, 1], [2, 2, 2, 4]]) / 10.0
        return p[self.seed]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_tokens_come_as_often_as_the_mixture_of_the_uploads_says(rule: str) -> None:
    draft, *workers = (Fixed(seed, vocabulary=4) for seed in range(3))
    plan = replace(PLAN, rule=rule, sampler=Sampler(1.0), codec="topk:2:residual", block_tokens=4)

    async def asked(seed: int) -> list[int]:
        schedules = [quick(0), quick(1)]
        async with simulated_federation(schedules, workers, draft, (0.7, 0.3)) as federation:
            return (await federation.asking(replace(plan, seed=seed)).ask("who?")).tokens

    tokens = [token for seed in range(16) for token in run(asked(seed))]
    # top 2 of (1, 3, 5, 1) and of (2, 2, 2, 4), ties to the lower id, the rest spread evenly
    law = 0.7 * np.array([0.1, 0.3, 0.5, 0.1]) + 0.3 * np.array([0.2, 0.2, 0.2, 0.4])
    counted = np.bincount(tokens, minlength=4)
    assert stats.chisquare(counted, law * len(tokens)).pvalue > 1e-3
