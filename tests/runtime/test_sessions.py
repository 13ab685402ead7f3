"""Answers over links that fail: the real runtime on simulated models, in virtual time.

Every run is drawn from a seed, and a failure names it. `loop.run` fails on tasks left behind, on
exceptions nobody handled and on dead-locks, so each of these tests checks that too.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from dragonrt.distributions import Distribution
from dragonrt.runtime.draft import Draft, Line
from dragonrt.runtime.drafter import Prediction
from dragonrt.runtime.modes.dragon import Answer, OnLoss
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.plan import PATIENCE_S, Plan
from dragonrt.runtime.queues import LINES_PER_STEP, DraftQueue
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script, SimulatedDrafter
from dragonrt.simulation.faults import Cut
from dragonrt.simulation.loop import run
from dragonrt.simulation.oracle import oracle
from dragonrt.simulation.pair import MakeDrafter, simulated_cloud, simulated_device
from dragonrt.simulation.schedule import Schedule

WAYS = [("coupled", placement) for placement in Placement] + [
    ("algorithm1", placement) for placement in Placement if placement is not Placement.BOTH
]
TOKENS = 12


def script(question: str) -> Script:
    """Another question, other distributions."""
    seed = sum(question.encode())
    return Script(seed, sharpness=2.0 + seed % 3, disagreement=0.4 * (seed % 4))


def plan_of(seed: int, **more: int) -> Plan:
    """A plan of any rule, aggregator and temperature."""
    rule, placement = WAYS[seed % len(WAYS)]
    return Plan(
        seed=seed % 50,
        sampler=Sampler(temperature=0.8 * (seed % 3 > 0)),
        rule=rule,
        placement=placement,
        codec="topp:0.95",
        max_tokens=TOKENS,
        stop_tokens=(0,),
        run_ahead=1 + seed % 16,
        **more,
    )


async def answer(
    schedule: Schedule,
    plan: Plan,
    on_loss: OnLoss,
    cloud_drafter: MakeDrafter = SimulatedDrafter,
    question: str = "who?",
) -> Answer:
    """One answer from start to end; afterwards nothing is left of it on the cloud."""
    cloud = simulated_cloud(schedule, script, cloud_drafter)
    async with simulated_device(cloud, schedule, script) as device:
        given = await device.asking(plan, on_loss).ask(question)
    await cloud.wait_idle()
    assert cloud.sessions == 0
    return given


def check(given: Answer, plan: Plan, name: str, question: str = "who?") -> None:
    """The text equals the oracle's, as far as the cloud was there to agree."""
    expected = oracle(plan, script(question))
    alone_from = given.counts.alone_from
    if alone_from is None:
        assert given.tokens == expected, f"another text than the oracle's in {name}"
        assert not [notice for notice in given.notices if "alone" in notice], name
    else:
        agreed = expected[:alone_from]
        assert given.tokens[:alone_from] == agreed, f"another text before the loss in {name}"
        assert any(f"alone from token {alone_from}:" in line for line in given.notices), name
        ended = given.tokens[-1] == 0 or len(given.tokens) == TOKENS
        assert ended, f"the device did not finish in {name}"
    assert given.finish in (Finish.STOP, Finish.LENGTH), name
    assert given.counts.divergences == 0, name


async def timed(answering: Coroutine[Any, Any, Answer]) -> tuple[Answer, float]:
    """The answer, and the virtual seconds until everything of it was over."""
    given = await answering
    return given, asyncio.get_running_loop().time()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_latency_jitter_and_bandwidth_change_nothing(block: int) -> None:
    for seed in range(60 * block, 60 * (block + 1)):
        schedule, plan = Schedule.draw(seed), plan_of(seed)
        given = run(answer(schedule, plan, "alone"))
        assert given.counts.alone_from is None, schedule
        check(given, plan, f"{schedule}")


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("on_loss", ["wait", "alone"])
def test_lost_connections(on_loss: OnLoss, block: int) -> None:
    for seed in range(80 * block, 80 * (block + 1)):
        schedule, plan = Schedule.draw(seed, cuts=1 + seed % 3), plan_of(seed)
        given = run(answer(schedule, plan, on_loss))
        if on_loss == "wait":
            assert given.counts.alone_from is None, schedule
        check(given, plan, f"{schedule}")


@pytest.mark.slow
@pytest.mark.parametrize("on_loss", ["wait", "alone"])
def test_stalled_links(on_loss: OnLoss) -> None:
    for seed in range(100):
        schedule, plan = Schedule.draw(seed, cuts=seed % 2, stalls=True), plan_of(seed)
        given = run(answer(schedule, plan, on_loss))
        if on_loss == "wait":
            assert given.counts.alone_from is None, schedule
        check(given, plan, f"{schedule}")


CUTS: list[Callable[[int], Cut]] = [
    lambda n: Cut("device", after_writes=n),
    lambda n: Cut("cloud", after_writes=n),
    lambda n: Cut("device", after_writes=n, reset=False),
    lambda n: Cut("cloud", after_writes=n, reset=False),
    lambda n: Cut("device", after_bytes=29 * n),
    lambda n: Cut("cloud", after_bytes=29 * n, reset=False),
]


@pytest.mark.slow
@pytest.mark.parametrize("cut", range(len(CUTS)))
@pytest.mark.parametrize(("rule", "placement"), [WAYS[0], WAYS[1], WAYS[-1]])
def test_a_cut_at_every_message_and_at_every_few_bytes(
    cut: int, rule: str, placement: Placement
) -> None:
    """Beginning within the handshake, and ending behind the answer's last message."""
    for n in range(36):
        schedule = Schedule(seed=n, latency_s=0.01, faults=(CUTS[cut](n),))
        plan = replace(plan_of(7), rule=rule, placement=placement, run_ahead=8)
        given = run(answer(schedule, plan, "wait"))
        assert given.counts.alone_from is None, schedule
        check(given, plan, f"{schedule}")


def test_a_cloud_that_does_not_come_back_ends_the_wait() -> None:
    for seed in range(20):
        gone = (Cut("cloud", after_bytes=0),) * 200
        first = Cut("cloud", after_writes=4 + seed)
        schedule, plan = replace(Schedule.draw(seed), faults=(first, *gone)), plan_of(seed)
        given, duration_s = run(timed(answer(schedule, plan, "wait")))
        check(given, plan, f"{schedule}")
        if given.counts.alone_from is not None:
            assert "waiting" in given.notices[0], schedule
            assert PATIENCE_S < duration_s < 2 * PATIENCE_S, schedule


@pytest.mark.slow
def test_queues_are_bounded_and_honest_drafts_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    put, longest = DraftQueue.put, 0

    def watched(queue: DraftQueue, draft: Draft) -> bool:
        nonlocal longest
        fits = put(queue, draft)
        assert fits, f"a draft of step {draft.step} lies beyond the window"
        longest = max(longest, len(queue))
        assert len(queue) <= LINES_PER_STEP * plan.window
        return fits

    monkeypatch.setattr(DraftQueue, "put", watched)
    for seed in range(60):
        schedule, plan = Schedule.draw(seed, cuts=seed % 3), plan_of(seed)
        check(run(answer(schedule, plan, "wait")), plan, f"{schedule}")
    assert longest > 0


# Several at once.


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [0, 1])
def test_sessions_of_one_connection_and_of_two_devices_do_not_disturb_each_other(
    cuts: int,
) -> None:
    questions = ["who?", "what was it?", "when?"]

    async def ask_all(schedule: Schedule, plans: list[Plan]) -> list[list[Answer]]:
        cloud = simulated_cloud(schedule, script)
        other = replace(schedule, seed=schedule.seed + 1, latency_s=0.03, faults=())
        async with (
            simulated_device(cloud, schedule, script) as first,
            simulated_device(cloud, other, script) as second,
        ):
            answers = await asyncio.gather(
                *(
                    device.asking(plan, "wait").ask(question)
                    for device in (first, second)
                    for plan, question in zip(plans, questions, strict=True)
                )
            )
        await cloud.wait_idle()
        assert cloud.sessions == 0
        return [answers[:3], answers[3:]]

    for seed in range(20):
        schedule = Schedule.draw(seed, cuts=cuts)
        plans = [plan_of(seed + n) for n in range(3)]
        for answers in run(ask_all(schedule, plans)):
            for given, plan, question in zip(answers, plans, questions, strict=True):
                check(given, plan, f"{schedule}, {question}", question)


def test_one_question_after_another_over_one_connection() -> None:
    async def ask(schedule: Schedule) -> None:
        cloud = simulated_cloud(schedule, script)
        async with simulated_device(cloud, schedule, script) as device:
            for number in range(5):
                plan = plan_of(schedule.seed + number)
                given = await device.asking(plan).ask("who?")
                check(given, plan, f"{schedule}, question {number}")
        await cloud.wait_idle()

    for seed in range(10):
        run(ask(Schedule.draw(seed)))


# Ending early.


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_an_answer_that_is_given_up_leaves_nothing_behind(how: str) -> None:
    async def give_up(schedule: Schedule, plan: Plan, after_s: float) -> Answer | None:
        cloud = simulated_cloud(schedule, script)
        async with simulated_device(cloud, schedule, script) as device:
            asking = device.asking(plan)
            task = asyncio.create_task(asking.ask("who?"))
            await asyncio.sleep(after_s)
            if how == "cancel":
                task.cancel()
            else:
                asking.stop()
            given, *_ = await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(2.0)  # what is under way arrives
            assert cloud.sessions == 0
            names = {task.get_name() for task in asyncio.all_tasks()}
            assert not [name for name in names if name.startswith("session")]
            assert cloud.connections == 1
            again = await device.asking(plan).ask("who?")
            assert again.tokens == oracle(plan, script("who?"))
        await cloud.wait_idle()
        return given if isinstance(given, Answer) else None

    for seed in range(60):
        schedule, plan = Schedule.draw(seed), plan_of(seed)
        given = run(give_up(schedule, plan, 0.02 * seed))
        if given is not None:
            expected = oracle(plan, script("who?"))
            assert given.tokens == expected[: len(given.tokens)], schedule
            complete = given.tokens == expected
            assert complete or given.finish is Finish.CANCELLED, schedule


def test_a_cloud_process_that_ends_is_replaced_by_the_next() -> None:
    async def replaced(schedule: Schedule, plan: Plan) -> Answer:
        cloud = simulated_cloud(schedule, script)
        async with simulated_device(cloud, schedule, script) as device:
            killer = asyncio.get_running_loop().call_later(
                0.4, lambda: killers.append(asyncio.ensure_future(cloud.kill()))
            )
            killers: list[asyncio.Future[None]] = []
            given = await device.asking(plan, "wait").ask("who?")
            killer.cancel()
        await asyncio.gather(*killers)
        await cloud.wait_idle()
        return given

    for seed in range(30):
        schedule, plan = Schedule.draw(seed), plan_of(seed)
        check(run(replaced(schedule, plan)), plan, f"{schedule}")


# Clouds that fail while their connection lives.


class StalledDrafter(SimulatedDrafter):
    """Stops answering after a few forwards, but can be preempted."""

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        if last >= 4:
            self._delay_s = lambda: 1e9
        return await super().predict(line, first, last)


def test_a_cloud_that_stops_drafting_is_left_after_patience() -> None:
    for seed, after_prepare in itertools.product(range(10), (False, True)):
        schedule = Schedule.draw(seed)
        if not after_prepare:
            schedule = replace(schedule, cloud_prepare_s=1e6)
        plan = plan_of(seed)
        given, duration_s = run(timed(answer(schedule, plan, "alone", StalledDrafter)))
        check(given, plan, f"{schedule}")
        if len(given.tokens) > 5 or not after_prepare:
            assert given.counts.alone_from is not None, schedule
            assert duration_s < 2 * PATIENCE_S, schedule


class DivergingDrafter(SimulatedDrafter):
    """Sends what it should, but takes another distribution for its own."""

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        predictions = await super().predict(line, first, last)
        return [
            replace(prediction, distribution=self._other(line, step))
            if step % 4 == 3
            else prediction
            for step, prediction in enumerate(predictions, start=first)
        ]

    def _other(self, line: Line, step: int) -> Distribution:
        p = self._script.distribution("device", ~line.hashes[step] % 2**64)
        return self._codec.quantize(p).distribution


def test_a_cloud_that_decides_another_text_is_noticed_and_the_devices_text_stands() -> None:
    diverged = 0
    for seed in range(40):
        schedule = Schedule.draw(seed)
        plan = replace(plan_of(seed), rule="coupled", placement=Placement.BOTH)
        given = run(answer(schedule, plan, "wait", DivergingDrafter))
        assert given.tokens == oracle(plan, script("who?")), schedule
        assert given.counts.alone_from is None, schedule
        diverged += given.counts.divergences
    assert diverged > 20


class FailingDrafter(SimulatedDrafter):
    """A defect of one side, or a model that runs out of memory."""

    async def predict(self, line: Line, first: int, last: int) -> list[Prediction]:
        if last >= 3:
            raise MemoryError("out of memory")
        return await super().predict(line, first, last)


def test_a_cloud_that_fails_says_so_and_serves_the_next_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def once(
        side: Side, plan: Plan, script: Script, delay_s: Callable[[], float]
    ) -> SimulatedDrafter:
        kind = FailingDrafter if plan.seed == 1 else SimulatedDrafter
        return kind(side, plan, script, delay_s)

    async def ask_twice(schedule: Schedule) -> None:
        cloud = simulated_cloud(schedule, script, once)
        async with simulated_device(cloud, schedule, script) as device:
            first = await device.asking(replace(plan_of(0), seed=1)).ask("who?")
            assert first.counts.alone_from is not None
            assert "internal error" in first.notices[0]
            plan = replace(plan_of(0), seed=2)
            second = await device.asking(plan).ask("who?")
            check(second, plan, "the second question")
            assert second.counts.alone_from is None
        await cloud.wait_idle()

    run(ask_twice(Schedule(seed=0, latency_s=0.01)))
    assert "out of memory" in caplog.text
