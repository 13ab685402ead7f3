"""Several workers of one coordinator in one process, and the text that they must give (SPEC 3)."""

import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import codec
from dragonrt.runtime.draft import extend_hash, start_hash
from dragonrt.runtime.modes.federated import Asking, FederatedPlan, Member
from dragonrt.runtime.modes.federated.coordination import Coordination
from dragonrt.runtime.trace import NoTrace, Trace
from dragonrt.sampling.federated import mixture
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.pair import (
    SimulatedCloud,
    SimulatedSide,
    simulated_cloud,
    simulated_device,
)
from dragonrt.simulation.schedule import Schedule


@dataclass(frozen=True, slots=True)
class WorkerScript(Script):
    """What the worker of this number says: what all sides share, bent in its own way."""

    worker: int = 0

    def distribution(self, side: Side, prefix_hash: int) -> NDArray[np.float64]:
        return _bent(self, prefix_hash)

    def relevance(self, side: Side, prefix_hash: int) -> float:
        return (prefix_hash >> (8 + 3 * self.worker) & 0xFF) / 128.0


@functools.lru_cache(maxsize=4096)
def _bent(script: WorkerScript, prefix_hash: int) -> NDArray[np.float64]:
    key = np.random.SeedSequence([script.seed, prefix_hash, script.worker])
    bend = script.disagreement * np.random.default_rng(key).standard_normal(script.vocabulary)
    p = Script.distribution(script, "cloud", prefix_hash) * np.exp(bend)
    p[0] = 0.0
    p *= (1.0 - script.stop) / p.sum()
    p[0] = script.stop
    p.setflags(write=False)
    return p


@dataclass(frozen=True, slots=True)
class SimulatedFederation:
    """A coordinator and its workers; made by `simulated_federation`."""

    side: SimulatedSide
    members: Sequence[Member]
    clouds: Sequence[SimulatedCloud]

    def asking(
        self,
        plan: FederatedPlan,
        on_token: Callable[[int], None] = lambda token: None,
    ) -> Asking:
        """An answer that can be asked for; its notices are in the Answer."""
        return Asking(
            self.side,
            self.members,
            plan,
            on_decision=lambda decision: on_token(decision.token),
            on_notice=lambda text: None,
        )


@asynccontextmanager
async def simulated_federation(
    schedules: Sequence[Schedule],
    scripts: Sequence[Script],
    draft_script: Script,
    weights: Sequence[float],
    trace: Trace | None = None,
) -> AsyncIterator[SimulatedFederation]:
    """Workers as slow as their schedules, each on its own link, until the context ends."""
    side = SimulatedSide(
        "device",
        lambda _: draft_script,
        schedules[0].seed,
        schedules[0].device_prepare_s,
        schedules[0].device_decode_s,
        trace=trace or NoTrace(),
    )
    members, clouds = [], []
    async with AsyncExitStack() as stack:
        each = zip(schedules, scripts, weights, strict=True)
        for number, (schedule, script, weight) in enumerate(each):
            answers = functools.partial(_always, script)
            cloud = simulated_cloud(schedule, answers)
            device = await stack.enter_async_context(simulated_device(cloud, schedule, answers))
            members.append(Member(f"worker {number}", device.connector, weight))
            clouds.append(cloud)
        yield SimulatedFederation(side, members, clouds)


def _always(script: Script, question: str) -> Script:
    return script


Weights = Callable[[int], Mapping[int, float]]
"""The weights, by the worker's number, with which the token of a step was decided."""


def federated_oracle(plan: FederatedPlan, scripts: Sequence[Script], weights: Weights) -> list[int]:
    """The coupled answer's tokens, the stop token included, as decided one after the other."""
    rule, code = plan.speculative_rule(), codec(plan.codec, scripts[0].vocabulary)
    tokens: list[int] = []
    prefix_hash = start_hash(plan.seed)
    while len(tokens) < plan.max_tokens and not (tokens and tokens[-1] in plan.stop_tokens):
        taken = weights(len(tokens))
        uploads = [
            code.quantize(scripts[worker].distribution("cloud", prefix_hash)).distribution
            for worker in taken
        ]
        target = rule.shape(mixture(uploads, list(taken.values())))
        tokens.append(rule.verify(len(tokens), (), None, [target]).token)
        prefix_hash = extend_hash(prefix_hash, tokens[-1])
    return tokens


def federated_rounds(
    plan: FederatedPlan, scripts: Sequence[Script], draft_script: Script, weights: Weights
) -> list[int]:
    """The tokens of an answer by any rule, round by round, without any runtime."""
    coordination = Coordination(plan, draft_script.vocabulary)
    code = codec(plan.codec, draft_script.vocabulary)
    while coordination.finish is None:
        line, decided = coordination.line, coordination.decided
        while not coordination.complete:
            coordination.draft(_said(draft_script, "device", line.hash))
        taken = weights(decided)
        uploads = [
            [
                code.quantize(_said(scripts[worker], "cloud", each)).distribution
                for each in line.hashes[decided:]
            ]
            for worker in taken
        ]
        coordination.verify(uploads, list(taken.values()))
    return coordination.line.tokens


def _said(script: Script, side: Side, prefix_hash: int) -> NDArray[np.float32]:
    """As a predictor says it: in single precision."""
    return script.distribution(side, prefix_hash).astype(np.float32)
