"""Speculative decoding over links that delay and fail: the real runtime in virtual time.

Every run is drawn from a seed, and a failure names it. `loop.run` fails on tasks left behind, on
exceptions nobody handled and on dead-locks, so each of these tests checks that too.
"""

import asyncio
import io
import itertools
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dragonrt.runtime.draft import Line
from dragonrt.runtime.modes.blocks import Answer, BlockAsking, OnLoss
from dragonrt.runtime.modes.speculative import BlockShape, SpeculativePlan, dropped_mass
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.plan import PATIENCE_S
from dragonrt.runtime.predictor import NextToken
from dragonrt.runtime.trace import TraceFile
from dragonrt.runtime.trace_summary import read_events, summarize
from dragonrt.simulation.blocks import block_asking, coupled_oracle, rejection_oracle
from dragonrt.simulation.drafter import Script, SimulatedPredictor, TimedModel
from numpy.typing import NDArray
from scipy.stats import chisquare

from dragonrt.control import Action, Controller, ControlState, Heuristic, controller
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Stream
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.stopping import AdaEDL, SpecDecPlusPlus, StoppingRule
from dragonrt.side import Side
from dragonrt.simulation.faults import Cut
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import (
    SimulatedCloud,
    SimulatedSide,
    linked_device,
    simulated_cloud,
    simulated_device,
)
from dragonrt.simulation.schedule import Schedule

TOKENS = 14
RUNS = 1500
WAYS = [
    ("coupled", "ids"),
    ("coupled", "ksqs:6:40"),
    ("rejection", "ksqs:6:40"),
    ("rejection", "csqs:0.03:60"),
    ("rejection", "qs:100"),
    ("rejection", "dense:fp16"),
    ("sample-quantize", "ksqs:5:20"),
]


def script(question: str) -> Script:
    """Another question, other distributions."""
    seed = sum(question.encode())
    return Script(seed, sharpness=2.0 + seed % 3, disagreement=0.4 * (seed % 4))


def plan_of(seed: int, **shape: Any) -> SpeculativePlan:
    """A plan of any rule, codec, temperature and shape of blocks."""
    rule, codec = WAYS[seed % len(WAYS)]
    drawn: dict[str, Any] = {"length": 1 + seed % 6, "outstanding": (1, 2, 4, 8)[seed % 4]}
    if seed % 5 == 0:
        drawn["budget"] = 60 + seed
    return SpeculativePlan(
        seed=seed % 50,
        sampler=Sampler(temperature=0.8 * (seed % 3 > 0)),
        rule=rule,
        codec=codec,
        max_tokens=TOKENS,
        stop_tokens=(0,),
        shape=BlockShape(**{**drawn, **shape}),
    )


def oracle(plan: SpeculativePlan, question: str = "who?") -> list[int]:
    return (coupled_oracle if plan.rule == "coupled" else rejection_oracle)(plan, script(question))


async def answer(
    schedule: Schedule, plan: SpeculativePlan, on_loss: OnLoss = "wait", question: str = "who?"
) -> Answer:
    """One answer from start to end; afterwards nothing is left of it on the cloud."""
    cloud = simulated_cloud(schedule, script)
    async with simulated_device(cloud, schedule, script) as device:
        given = await block_asking(device, plan, on_loss).ask(question)
    await cloud.wait_idle()
    assert cloud.sessions == 0
    return given


def check(given: Answer, plan: SpeculativePlan, name: str, question: str = "who?") -> None:
    """The text equals the oracle's, as far as the cloud was there to agree."""
    expected, alone_from = oracle(plan, question), given.counts.alone_from
    if alone_from is None:
        assert given.tokens == expected, f"another text than the oracle's in {name}"
    else:
        assert given.tokens[:alone_from] == expected[:alone_from], f"another text in {name}"
        assert any(f"alone from token {alone_from}:" in line for line in given.notices), name
    assert given.finish in (Finish.STOP, Finish.LENGTH), name
    assert given.tokens[-1] == 0 or len(given.tokens) == TOKENS, name
    assert given.counts.decided == len(given.tokens)
    assert given.counts.judged + given.counts.wasted == given.counts.drafted


async def timed(answering: Coroutine[Any, Any, Answer]) -> tuple[Answer, float]:
    """The answer, and the virtual seconds until everything of it was over."""
    given = await answering
    return given, asyncio.get_running_loop().time()


# The oracle: no link, no pipeline and no fault changes a token.


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_latency_jitter_bandwidth_and_pipelining_change_nothing(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        schedule, plan = Schedule.draw(seed), plan_of(seed)
        given = run(answer(schedule, plan))
        assert given.counts.alone_from is None, (schedule, given.notices)
        check(given, plan, f"{schedule}")


@pytest.mark.slow
@pytest.mark.parametrize("outstanding", [1, 2, 8])
def test_drafting_on_the_guess_gives_the_text_of_waiting(outstanding: int) -> None:
    for seed in range(40):
        plan = plan_of(seed, outstanding=outstanding)
        check(run(answer(Schedule(seed, latency_s=0.1), plan)), plan, f"seed {seed}")


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_the_shortest_answers(max_tokens: int) -> None:
    """Shorter than their blocks; with a cut, whatever was verified before it is not said twice."""
    for seed in range(42):
        plan = replace(plan_of(seed), max_tokens=max_tokens)
        given = run(answer(Schedule.draw(seed, cuts=seed % 2), plan))
        assert given.tokens == oracle(plan), seed
        assert given.finish is (Finish.STOP if given.tokens[-1] == 0 else Finish.LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("on_loss", ["wait", "alone"])
def test_lost_connections(on_loss: OnLoss, block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        schedule, plan = Schedule.draw(seed, cuts=1 + seed % 3), plan_of(seed)
        given = run(answer(schedule, plan, on_loss))
        if on_loss == "wait":
            assert given.counts.alone_from is None, (schedule, given.notices)
        check(given, plan, f"{schedule}")


@pytest.mark.slow
def test_stalled_links() -> None:
    for seed in range(40):
        schedule, plan = Schedule.draw(seed, cuts=seed % 2, stalls=True), plan_of(seed)
        given = run(answer(schedule, plan))
        assert given.counts.alone_from is None, (schedule, given.notices)
        check(given, plan, f"{schedule}")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["device", "cloud"])
def test_a_cut_at_every_message_and_at_every_few_bytes(side: Side) -> None:
    for n, way in itertools.product(range(20), (0, 3)):
        for cut in (Cut(side, after_writes=n), Cut(side, after_bytes=29 * n, reset=False)):
            schedule = Schedule(seed=n, latency_s=0.01, faults=(cut,))
            plan = plan_of(7 * n + way, outstanding=2)
            given = run(answer(schedule, plan))
            assert given.counts.alone_from is None, (schedule, given.notices)
            check(given, plan, f"{schedule}")


def test_controllers_and_stopping_rules_change_the_blocks_and_not_the_text() -> None:
    for seed in range(12):
        plain = plan_of(7 * seed)
        assert plain.rule == "coupled"
        texts = []
        for spec in ("static:3:20", "heuristic:50"):
            shape = BlockShape(controller=controller(spec))
            texts.append(run(answer(Schedule(seed), replace(plain, shape=shape))).tokens)
        stopping: StoppingRule = AdaEDL(longest=5, threshold=0.3)
        shape = BlockShape(length=9, stopping=stopping)
        given = run(answer(Schedule(seed), replace(plain, shape=shape)))
        assert given.counts.drafted <= 5 * given.counts.blocks
        assert texts == [given.tokens] * 2 == [oracle(plain)] * 2


class HalfSure:
    """Gives every token an even chance to stand."""

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        return 0.5


def test_a_trained_head_ends_blocks_and_does_not_change_the_text() -> None:
    for seed in range(6):
        plain = plan_of(7 * seed)
        stopping = SpecDecPlusPlus(longest=9, threshold=0.7)  # 1 - 0.5² is above it, 1 - 0.5 not
        shape = BlockShape(length=9, stopping=stopping, acceptance=HalfSure(), outstanding=1)
        given = run(answer(Schedule(seed), replace(plain, shape=shape)))
        counts = given.counts
        assert 2 * counts.blocks - 2 <= counts.drafted <= 2 * counts.blocks
        assert given.tokens == oracle(plain)


def test_a_controllers_resolution_travels() -> None:
    shape = BlockShape(controller=controller("static:4:17"))
    plan = replace(plan_of(2), shape=shape, codec="ksqs:6:40")
    same = replace(plan, codec="ksqs:6:17", shape=BlockShape(length=4))
    assert plan.rule == "rejection"
    assert run(answer(Schedule(2), plan)).tokens == oracle(same)


def test_a_cloud_that_does_not_come_back_ends_the_wait() -> None:
    for seed in range(10):
        gone = (Cut("cloud", after_bytes=0),) * 200
        first = Cut("cloud", after_writes=4 + seed % 3)
        schedule, plan = replace(Schedule.draw(seed), faults=(first, *gone)), plan_of(seed)
        given, duration_s = run(timed(answer(schedule, plan)))
        check(given, plan, f"{schedule}")
        if given.counts.alone_from is not None:
            assert "waiting" in given.notices[0], schedule
            assert PATIENCE_S < duration_s < 2 * PATIENCE_S, schedule


class StalledPredictor(SimulatedPredictor):
    """Stops answering after a few tokens, but can be preempted."""

    async def predict(self, line: Line, first: int, last: int) -> list[NextToken]:
        if last >= 4:
            self._delay_s = lambda: 1e9
        return await super().predict(line, first, last)


def test_a_cloud_that_stops_verifying_is_left_after_patience() -> None:
    async def ask(plan: SpeculativePlan) -> Answer:
        cloud = SimulatedCloud(SimulatedSide("cloud", script, make_predictor=StalledPredictor))
        async with simulated_device(cloud, Schedule(1), script) as device:
            given = await block_asking(device, plan).ask("who?")
        await cloud.wait_idle()
        return given

    given, duration_s = run(timed(ask(plan_of(1))))
    check(given, plan_of(1), "the stalled cloud")
    assert given.counts.alone_from is not None
    assert "not verified a block" in given.notices[0]
    assert duration_s < 2 * PATIENCE_S


# Several at once, and ending early.


def test_sessions_of_one_connection_do_not_disturb_each_other() -> None:
    questions = ["who?", "what was it?", "when?"]

    async def ask_all(schedule: Schedule, plans: list[SpeculativePlan]) -> list[Answer]:
        cloud = simulated_cloud(schedule, script)
        async with simulated_device(cloud, schedule, script) as device:
            asked = zip(plans, questions, strict=True)
            answers = await asyncio.gather(
                *(block_asking(device, plan, "wait").ask(question) for plan, question in asked)
            )
        await cloud.wait_idle()
        return list(answers)

    for seed in range(12):
        schedule = Schedule.draw(seed, cuts=seed % 2)
        plans = [plan_of(seed + n) for n in range(3)]
        for given, plan, question in zip(
            run(ask_all(schedule, plans)), plans, questions, strict=True
        ):
            check(given, plan, f"{schedule}, {question}", question)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_an_answer_that_is_given_up_leaves_nothing_behind(how: str) -> None:
    async def give_up(schedule: Schedule, plan: SpeculativePlan, after_s: float) -> Answer | None:
        cloud = simulated_cloud(schedule, script)
        async with simulated_device(cloud, schedule, script) as device:
            asking = block_asking(device, plan)
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
            again = await block_asking(device, plan).ask("who?")
            assert again.tokens == oracle(plan)
        await cloud.wait_idle()
        return given if isinstance(given, Answer) else None

    for seed in range(40):
        schedule, plan = Schedule.draw(seed), plan_of(seed)
        given = run(give_up(schedule, plan, 0.02 * seed))
        if given is not None:
            expected = oracle(plan)
            assert given.tokens == expected[: len(given.tokens)], schedule
            assert given.tokens == expected or given.finish is Finish.CANCELLED, schedule


def test_who_is_shown_a_token_can_end_the_answer_there() -> None:
    async def ask(plan: SpeculativePlan) -> Answer:
        cloud = simulated_cloud(Schedule(1), script)
        shown: list[int] = []

        def show(token: int) -> None:
            shown.append(token)
            if len(shown) == 3:
                asking.stop(Finish.STOP)

        async with simulated_device(cloud, Schedule(1), script) as device:
            asking = block_asking(device, plan, on_token=show)
            given = await asking.ask("who?")
        await cloud.wait_idle()
        return given

    for seed in range(8):
        plan = plan_of(7 * seed, length=6)
        given = run(ask(plan))
        assert (given.tokens, given.finish) == (oracle(plan)[:3], Finish.STOP)


def test_a_wait_for_a_lost_cloud_can_be_stopped() -> None:
    async def ask() -> Answer:
        gone = (Cut("cloud", after_writes=4), *(Cut("cloud", after_bytes=0),) * 200)
        schedule = Schedule(seed=2, latency_s=0.01, faults=gone)
        cloud = simulated_cloud(schedule, script)
        async with simulated_device(cloud, schedule, script) as device:
            asking: BlockAsking = block_asking(device, plan_of(2), "wait")
            asyncio.get_running_loop().call_later(10.0, asking.stop)
            given = await asking.ask("who?")
            assert asyncio.get_running_loop().time() < 10.1
        await cloud.wait_idle()
        return given

    given = run(ask())
    assert given.finish is Finish.CANCELLED
    assert "waiting" in given.notices[0]


# What comes out is the cloud's distribution.


class TableModel(TimedModel):
    """Implements Predictor: a distribution for each last token, and one for the beginning."""

    def __init__(self, table: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        super().__init__(lambda: 0.001)
        self._table = table

    async def predict(self, line: Line, first: int, last: int) -> list[NextToken]:
        await self._pass(line.hashes[first : last + 1])
        previous = [line.tokens[n - 1] if n else -1 for n in range(first, last + 1)]
        return [
            NextToken(self._table[each].astype(np.float32), 0.0, np.zeros(1, np.float32))
            for each in previous
        ]


class Confident:
    """A controller that looks at all it may: longer and finer blocks behind what was likely."""

    name = "confident"

    def choose(self, state: ControlState) -> Action:
        sure = bool(state.confidences) and state.confidences[-1] > 0.4
        return Action(2, 4) if sure or state.accepted else Action(1, 9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "codec", "controller"),
    [
        ("rejection", "ksqs:2:5", None),
        ("rejection", "qs:5", Heuristic(3)),
        ("rejection", "csqs:0.2:7", Confident()),
        ("coupled", "ids", None),
    ],
)
def test_texts_follow_the_clouds_law(rule: str, codec: str, controller: Controller | None) -> None:
    """Coarse codecs, another draft model, blocks under way: the law of whole texts all the same."""
    drafts, targets = np.random.default_rng(5).dirichlet(np.ones(3), (2, 4))

    def side(role: Side, table: np.ndarray[Any, np.dtype[np.float64]]) -> SimulatedSide:
        return SimulatedSide(
            role, lambda _: Script(0, vocabulary=3), make_predictor=lambda *_: TableModel(table)
        )

    def emulate(stream: Stream) -> Stream:
        return EmulatedStream(stream, LinkModel(latency_s=0.002), LinkModel(latency_s=0.002))

    async def sample(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        found = np.zeros((3, 3, 3), np.int64)
        cloud = SimulatedCloud(side("cloud", targets))
        async with linked_device(cloud, side("device", drafts), emulate) as device:
            for seed in range(count):
                plan = SpeculativePlan(
                    seed=seed,
                    sampler=Sampler(1.0),
                    rule=rule,
                    codec=codec,
                    max_tokens=3,
                    shape=BlockShape(
                        length=1 + seed % 2, controller=controller, outstanding=1 + seed % 3
                    ),
                )
                found[tuple((await block_asking(device, plan).ask("")).tokens)] += 1
        await cloud.wait_idle()
        return found

    law = np.array(
        [
            targets[-1][a] * targets[a][b] * targets[b][c]
            for a, b, c in itertools.product(range(3), repeat=3)
        ]
    )
    found = run(sample(RUNS)).ravel()
    likely = law > 0.003
    observed = [*found[likely], found[~likely].sum()]
    expected = [*law[likely], law[~likely].sum()]
    assert chisquare(observed, RUNS * np.array(expected)).pvalue > 0.001


# What the answer and the traces say.


def traced(plan: SpeculativePlan, cuts: int = 0) -> tuple[Answer, list[dict[str, Any]], Any]:
    """An answer, the device's events and both sides' summaries."""
    files = io.StringIO(), io.StringIO()

    async def ask() -> Answer:
        clock = asyncio.get_running_loop().time
        schedule = Schedule.draw(plan.seed, cuts=cuts)
        cloud = simulated_cloud(schedule, script, trace=TraceFile(files[1], clock, side="cloud"))
        async with simulated_device(cloud, schedule, script) as device:
            device.side.trace = TraceFile(files[0], clock, side="device")
            given = await block_asking(device, plan, "wait").ask("who?")
        await cloud.wait_idle()
        return given

    given = run(ask())
    events = [read_events(file.getvalue().splitlines(keepends=True), "trace") for file in files]
    return given, events[0], [summarize(each) for each in events]


def test_theorem_2_holds_on_every_trace_of_c_sqs() -> None:
    for seed in range(30):
        shape = BlockShape(length=1 + seed % 5, learning_rate=0.05, target=0.02)
        plan = replace(plan_of(seed), rule="rejection", codec="csqs:0.2:60", shape=shape)
        given, events, _ = traced(plan, cuts=seed % 3)
        found = dropped_mass(events)
        assert found is not None
        assert found.holds, (seed, found)
        assert len(given.tokens) <= found.tokens <= len(given.tokens) + 5
    assert dropped_mass(traced(plan_of(0))[1]) is None


def test_a_threshold_out_of_line_is_noticed() -> None:
    plan = replace(plan_of(3), codec="csqs:0.2:60")
    events = traced(plan)[1]
    moved = [event for event in events if event["event"] == "threshold"]
    moved[2]["beta"] += 0.01
    found = dropped_mass(events)
    assert found is not None
    assert not found.follows
    assert not found.holds


def test_both_traces_and_the_answer_tell_the_same_numbers() -> None:
    for seed in range(8):
        plan = plan_of(seed)
        given, _, (device, cloud) = traced(plan)
        counts, total, theirs = given.counts, device.total, cloud.total
        assert total.tokens == len(given.tokens)
        assert (total.blocks, total.block_tokens, total.bits) == (
            counts.blocks,
            counts.drafted,
            counts.bits,
        )
        assert total.verified == counts.verified == theirs.verified
        assert total.resampled == counts.resampled == theirs.resampled
        assert total.accepted["device"] == counts.accepted == theirs.accepted["device"]
        numbers = total.to_json()
        assert numbers["acceptance"]["device"] == counts.statistics()["acceptance"]["device"]
        assert numbers["resampling_rate"] == counts.statistics()["resampling_rate"]
        json.dumps(counts.statistics())
        assert [answer.finish for answer in cloud.answers] == [given.finish.value]


def test_decisions_tell_drafts_from_the_clouds_tokens() -> None:
    given = run(answer(Schedule(3), plan_of(14)))
    shares = [decision.device_share for decision in given.decisions]
    assert sum(shares) <= given.counts.accepted
    assert {0.0, 1.0} == set(shares)
    assert all(line.count("\n") == 0 for line in given.notices)


def test_the_sides_prepare_at_the_same_time() -> None:
    async def first_token_s(schedule: Schedule) -> float:
        given = await answer(schedule, replace(plan_of(0), seed=1))
        return given.decisions[0].time_s - given.asked_s

    slow = Schedule(1, device_prepare_s=5.0, cloud_prepare_s=5.0)
    one = run(first_token_s(replace(slow, cloud_prepare_s=0.0)))
    other = run(first_token_s(replace(slow, device_prepare_s=0.0)))
    assert run(first_token_s(slow)) < max(one, other) + 1.0
