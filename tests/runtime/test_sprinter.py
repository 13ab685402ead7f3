"""Approximate verification: Theorems 1 - 3 on the mode's own parts, and the text on any link."""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.modes.blocks import BlockAsking, BlockError, EncodedBlock, OnLoss
from dragonrt.runtime.modes.blocks.asking import Answer
from dragonrt.runtime.modes.sprinter import (
    SprinterCounts,
    SprinterDrafting,
    SprinterPlan,
    SprinterVerifying,
    beginning,
)
from dragonrt.runtime.modes.sprinter.pairing import verifier_of
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.predictor import NextToken
from dragonrt.runtime.trace import TraceFile
from dragonrt.simulation.drafter import Script
from numpy.typing import NDArray
from scipy import stats

from dragonrt.control.verifier import Kind, TrainedPair, Verifier
from dragonrt.distributions import Distribution, total_variation
from dragonrt.errors import DragonError
from dragonrt.sampling import (
    Noise,
    Sampler,
    expected_acceptance_sprinter,
    expected_run_length,
    mixture_tv,
    output_distribution,
    stopping_time,
    verify_last,
)
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import SimulatedDevice, simulated_cloud, simulated_device
from dragonrt.simulation.schedule import Schedule
from dragonrt.simulation.sprinting import KnownRates, Lockstep
from dragonrt.wire import messages as wire

V = 8
RNG = np.random.default_rng(11)
P, Q = RNG.dirichlet(np.full(V, 0.8), 2).astype(np.float32)
PLAN = SprinterPlan(seed=0, sampler=Sampler(1.0), codec="dense:fp32", max_tokens=64)


class Constant:
    """A verifier that says the same of every token."""

    threshold = 0.5

    def __init__(self, says: float) -> None:
        self._says = says

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        return self._says


def said(p: NDArray[np.floating[Any]], q: NDArray[np.floating[Any]]) -> NextToken:
    return NextToken(q.astype(np.float32), 0.0, p.astype(np.float32))


def on_wire(block: EncodedBlock, number: int = 1) -> wire.Block:
    return wire.Block(
        session=1,
        round=number,
        step=block.step,
        prefix_hash=block.prefix_hash & 0xFFFFFFFF,
        count=block.count,
        resolutions=block.resolutions,
        decided=block.decided,
        payload=block.payload,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("eta_tp", "eta_fp"), [(0.8, 0.3), (0.3, 0.7), (1.0, 0.0), (0.9, 0.9)])
def test_theorem_1_by_statistics(eta_tp: float, eta_fp: float) -> None:
    """The mode's own drafting and verifying draw from (1 - η_FP) p + η_FP q."""
    tokens = 5000
    plan = replace(PLAN, seed=5, max_tokens=tokens, run_length=256)
    text = Lockstep(plan, V, KnownRates(eta_tp, eta_fp, seed=0))
    counts = np.zeros(V)
    for _ in range(tokens):
        counts[text.next(P, Q).token] += 1
    p, q = (Distribution.from_dense(each / each.sum(dtype=np.float64)) for each in (P, Q))
    law = output_distribution(p, q, eta_fp).to_dense()
    assert stats.chisquare(counts, law * tokens).pvalue > 1e-3
    other = output_distribution(p, q, 1 - eta_fp).to_dense()
    assert stats.chisquare(counts, other * tokens).pvalue < 1e-6
    tv = total_variation(p, q)
    distance = 0.5 * float(np.abs(counts / tokens - p.to_dense()).sum())
    assert distance == pytest.approx(mixture_tv(eta_fp, tv), abs=0.03)
    acceptance = text.drafting.counts.statistics()["acceptance"]["device"]
    expected = expected_acceptance_sprinter(eta_fp, tv)
    assert abs(acceptance - expected) <= 4 * math.sqrt(expected * (1 - expected) / tokens) + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("eta_tp", [0.6, 0.9])
@pytest.mark.parametrize("eta_fp", [0.1, 0.5])
def test_theorems_2_and_3_by_simulation(eta_tp: float, eta_fp: float) -> None:
    """`r` acceptable tokens, then unacceptable ones: tokens until the verifier refuses one."""
    r, runs = 4, 1000
    unacceptable = np.array([0.5, *np.full(V - 1, 0.5 / (V - 1))])
    only_first = np.eye(V)[0]
    verifier = KnownRates(eta_tp, eta_fp, seed=0)
    lengths = []
    for seed in range(runs):
        plan = replace(PLAN, seed=seed, run_length=256)
        drafting = SprinterDrafting(plan, V, verifier)
        forwards = 0
        while drafting.ready:
            p, q = (Q, Q) if forwards < r else (unacceptable, only_first)
            drafting.draft(said(p, q), math.inf)
            forwards += 1
        lengths.append(drafting.decided)
        assert forwards == drafting.decided + 1
    error = float(np.std(lengths)) / math.sqrt(runs)
    mean = float(np.mean(lengths))
    assert abs(mean - expected_run_length(eta_tp, eta_fp, r)) < 4 * error
    assert abs(0.02 * (mean + 1) - stopping_time(0.02, eta_tp, eta_fp, r)) < 4 * 0.02 * error


def test_a_run_ends_at_its_cap() -> None:
    text = Lockstep(replace(PLAN, run_length=4), V, Constant(1.0))
    called = [text.next(P, Q).called for _ in range(12)]
    assert called == [False, False, False, True] * 3


def test_a_block_carries_the_run_and_one_token_to_verify() -> None:
    drafting = SprinterDrafting(replace(PLAN, run_length=3), V, Constant(1.0))
    for _ in range(2):
        assert drafting.draft(said(P, Q), math.inf).block is None
    counts = drafting.counts
    assert isinstance(counts, SprinterCounts)
    assert (counts.unverified, counts.unread) == (2, 2)
    block = drafting.draft(said(P, Q), math.inf).block
    assert block is not None
    assert not drafting.ready
    assert (block.step, block.count) == (2, 1)
    assert list(block.decided) == drafting.line.tokens[:2]
    drafting.take(wire.Verdict(1, 1, 1, drafting.line.tokens[2], 0))
    assert (counts.unverified, counts.unread, counts.accepted, counts.resampled) == (2, 0, 1, 0)
    for _ in range(2):
        drafting.draft(said(P, Q), math.inf)
    block = drafting.draft(said(P, Q), math.inf).block
    assert block is not None
    assert len(block.decided) == 2, "the cloud knows what is before"
    drafting.take(wire.Verdict(1, 2, 0, (drafting.line.tokens[5] + 1) % V, 0))
    assert drafting.counts.resampled == 1
    assert drafting.counts.statistics()["tokens_per_target_call"] == 3.0


def test_impossible_verdicts() -> None:
    drafting = SprinterDrafting(PLAN, V, Constant(0.0))
    with pytest.raises(BlockError, match="no token waits"):
        drafting.take(wire.Verdict(1, 1, 0, 0, 0))
    drafting.draft(said(P, Q), math.inf)
    drafted = drafting.line.tokens[0]
    for accepted, token in ((0, drafted), (1, (drafted + 1) % V)):
        with pytest.raises(BlockError, match="another token"):
            drafting.take(wire.Verdict(1, 1, accepted, token, 0))
    with pytest.raises(BlockError, match="beyond the vocabulary"):
        drafting.take(wire.Verdict(1, 1, 0, V, 0))


def test_a_block_of_more_tokens_is_refused() -> None:
    drafting = SprinterDrafting(PLAN, V, Constant(0.0))
    block = drafting.draft(said(P, Q), math.inf).block
    assert block is not None
    with pytest.raises(BlockError, match="one token"):
        SprinterVerifying(PLAN, V).read(replace(on_wire(block), count=2))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"rule": "coupled"}, "rejection"),
        ({"codec": "ids"}, "distributions"),
        ({"threshold": 1.5}, "threshold"),
        ({"run_length": 0}, "run"),
        ({"run_length": 257}, "run"),
    ],
)
def test_a_plan_that_makes_no_sense(change: dict[str, Any], line: str) -> None:
    PLAN.check()
    with pytest.raises(DragonError, match=line) as refused:
        replace(PLAN, **change).check()
    assert "\n" not in str(refused.value)


def test_the_settings_say_that_it_is_approximate() -> None:
    assert PLAN.settings()["approximate"] is True


def trained(kind: Kind = "sprinter") -> Verifier:
    pair = TrainedPair("small one", "large one", "aaaa", "bbbb")
    return Verifier(kind, "hidden", pair, np.zeros(3, np.float32), 0.0)


def test_a_verifier_is_for_its_two_models_only() -> None:
    given = trained()
    assert verifier_of("aaaa", "bbbb", given) is given
    for draft, target in (("cccc", "bbbb"), ("aaaa", "cccc")):
        with pytest.raises(DragonError, match="train one with"):
            verifier_of(draft, target, given)
    with pytest.raises(DragonError, match="no sprinter verifier"):
        verifier_of("aaaa", "bbbb", None)
    with pytest.raises(DragonError, match="specdec"):
        verifier_of("aaaa", "bbbb", trained("specdec++"))


# The runtime, in virtual time. What the oracle does is written out here once more.

TOKENS = 16


class OfPrefix:
    """A verifier that goes by the hidden state, which in a simulation is of the prefix."""

    threshold = 0.4

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        return float(hidden[0] + 1) / 2


def script(question: str) -> Script:
    seed = sum(question.encode())
    return Script(seed, sharpness=2.0 + seed % 3, disagreement=0.4 * (seed % 4))


def plan_of(seed: int) -> SprinterPlan:
    return SprinterPlan(
        seed=seed % 50,
        sampler=Sampler(temperature=0.8 * (seed % 3 > 0)),
        codec=("dense:fp32", "topk:8:renorm", "ksqs:8:100", "topp:0.9")[seed % 4],
        max_tokens=TOKENS,
        stop_tokens=(0,),
        threshold=(None, 0.2, 0.9, 1.0)[seed // 3 % 4],
        run_length=(32, 1, 3)[seed % 3],
    )


def oracle(plan: SprinterPlan, models: Script) -> list[int]:
    """Token by token, without blocks, sessions or links."""
    line, run_length = Line(start_hash(plan.seed)), 0
    codec, rule = plan.block_codec(models.vocabulary), plan.speculative_rule()
    verifier, noise = OfPrefix(), Noise(plan.seed)
    threshold = verifier.threshold if plan.threshold is None else plan.threshold
    while len(line) < plan.max_tokens and line.tokens[-1:] != [0]:
        p, q = (
            models.distribution(side, line.hash).astype(np.float32) for side in ("cloud", "device")
        )
        seen = codec.quantize(rule.shape(q)).distribution
        token = rule.draft(len(line), seen)
        hidden = np.array([(line.hash >> 32) / 2**31 - 1], np.float32)
        run_length += 1
        says_no = verifier.probability(hidden, q, token) < threshold
        if says_no or run_length == plan.run_length:
            _, token = verify_last(token, seen, rule.shape(p), noise, len(line))
            run_length = 0
        line.append(token)
    return line.tokens


async def answer(
    schedule: Schedule, plan: SprinterPlan, on_loss: OnLoss, ask: Callable[..., Any] | None = None
) -> Answer:
    cloud = simulated_cloud(schedule, script)
    async with simulated_device(cloud, schedule, script) as device:
        given: Answer = await asking(device, plan, on_loss).ask("who?")
    await cloud.wait_idle()
    assert cloud.sessions == 0
    return given


def asking(device: SimulatedDevice, plan: SprinterPlan, on_loss: OnLoss) -> BlockAsking:
    begin = beginning(device.side, device.connector, OfPrefix(), on_loss)
    return begin(plan, lambda decision: None, lambda text: None)


@pytest.mark.slow
def test_latency_jitter_and_bandwidth_change_nothing() -> None:
    for seed in range(40):
        schedule, plan = Schedule.draw(seed), plan_of(seed)
        given = run(answer(schedule, plan, "alone"))
        assert given.tokens == oracle(plan, script("who?")), schedule
        assert given.finish in (Finish.STOP, Finish.LENGTH)
        used = OfPrefix.threshold if plan.threshold is None else plan.threshold
        assert given.plan.settings()["threshold"] == used
        counts = given.counts
        assert isinstance(counts, SprinterCounts)
        assert counts.unverified + counts.verified == counts.decided == len(given.tokens)
        assert not given.notices


@pytest.mark.slow
def test_lost_connections_change_nothing_for_who_waits() -> None:
    for seed in range(45):
        schedule, plan = Schedule.draw(seed, cuts=1 + seed % 3), plan_of(seed)
        given = run(answer(schedule, plan, "wait"))
        assert given.tokens == oracle(plan, script("who?")), schedule


@pytest.mark.slow
def test_who_does_not_wait_goes_on_alone_and_says_so() -> None:
    alone = 0
    for seed in range(25):
        schedule, plan = Schedule.draw(seed, cuts=1 + seed % 3), plan_of(seed)
        given = run(answer(schedule, plan, "alone"))
        expected = oracle(plan, script("who?"))
        since = given.counts.alone_from
        assert given.tokens[:since] == expected[:since], schedule
        assert given.finish in (Finish.STOP, Finish.LENGTH)
        if since is not None:
            alone += 1
            assert any(f"alone from token {since}" in notice for notice in given.notices)
    assert alone > 3


def test_a_cloud_that_knows_no_such_block_ends_the_session_only() -> None:
    """A hostile device gets its session closed; another one is answered."""

    class Hostile(SprinterDrafting):
        def draft(self, said: NextToken, rate: float) -> Any:
            advance = super().draft(said, rate)
            block = advance.block
            return replace(advance, block=block and replace(block, payload=b"\xff" * 9))

    async def both() -> tuple[Answer, Answer]:
        schedule = Schedule(seed=1)
        plan = replace(plan_of(7), threshold=1.0)
        cloud = simulated_cloud(schedule, script)
        async with simulated_device(cloud, schedule, script) as device:
            hostile = BlockAsking(
                device.side,
                device.connector,
                plan,
                Hostile(plan, device.side.vocabulary, OfPrefix()),
                on_decision=lambda decision: None,
                on_notice=lambda text: None,
            )
            refused = await hostile.ask("who?")
            answered = await asking(device, plan, "alone").ask("who?")
        await cloud.wait_idle()
        return refused, answered

    refused, answered = run(both())
    assert refused.counts.alone_from == 0
    assert "not from the codec" in refused.notices[0]
    assert answered.counts.alone_from is None


def test_the_cloud_has_a_plan_of_the_mode() -> None:
    message = PLAN.open_message("?", (), (), 1)
    assert BlockPlan.of(message).mode == "sprinter"


def test_the_trace_tells_which_tokens_were_verified(tmp_path: Path) -> None:
    plan = replace(plan_of(4), threshold=1.0, max_tokens=8)

    async def traced() -> Answer:
        with (tmp_path / "trace").open("w") as file:
            trace = TraceFile(file, asyncio.get_running_loop().time, side="device")
            cloud = simulated_cloud(Schedule(1), script)
            async with simulated_device(cloud, Schedule(1), script) as device:
                side = replace(device.side, trace=trace)
                begin = beginning(side, device.connector, OfPrefix(), "alone")
                given: Answer = await begin(plan, lambda decision: None, lambda text: None).ask(
                    "who?"
                )
            await cloud.wait_idle()
        return given

    counts = run(traced()).counts
    lines = (tmp_path / "trace").read_text().splitlines()
    verdicts = [event for event in map(json.loads, lines) if event["event"] == "verdict"]
    assert len(verdicts) == counts.verified > 3
    assert sum(verdict["accepted"] for verdict in verdicts) == counts.accepted > 0
    assert counts.resampled == counts.verified - counts.accepted
