"""The oracle: every speculative run equals the synchronous run token for token (SPEC section 0).

Two generations over a simulated link in virtual time: seeded delays of every message and every
forward. A failing schedule is named by its seed.
"""

import asyncio
import functools
import itertools
import random
from collections import deque

import pytest

from dragonrt.runtime.draft import Draft
from dragonrt.runtime.generation import Generation, GenerationError
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import NoTrace
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script, SimulatedDrafter
from dragonrt.simulation.loop import run


class DelayedLink:
    """One direction of a link: each message arrives after a random delay, in order."""

    def __init__(self, chance: random.Random, latency_s: float, jitter_s: float) -> None:
        self.receiver: Generation | None = None
        self._chance = chance
        self._latency_s, self._jitter_s = latency_s, jitter_s
        self._arrival_s = 0.0
        self._travelling: deque[tuple[str, tuple[object, ...]]] = deque()

    def _deliver(self, method: str, *arguments: object) -> None:
        loop = asyncio.get_running_loop()
        delay_s = self._latency_s + self._chance.uniform(-1, 1) * self._jitter_s
        self._arrival_s = max(self._arrival_s, loop.time() + max(delay_s, 0.0))
        self._travelling.append((method, arguments))
        loop.call_at(self._arrival_s, self._arrive)

    def _arrive(self) -> None:
        """Timers of the same instant fire in any order, so the oldest message arrives."""
        method, arguments = self._travelling.popleft()
        getattr(self.receiver, method)(*arguments)

    def send_draft(self, draft: Draft, decided: int, decided_hash: int) -> None:
        travelling = Draft(
            draft.step,
            draft.prefix_hash,
            draft.token,
            draft.payload,
            draft.relevance,
            draft.decode_s,
        )
        self._deliver("receive_draft", travelling, decided, decided_hash)

    def send_target(self, step: int, prefix_hash: int, token: int, aggregator: Side) -> None:
        self._deliver("receive_target", step, prefix_hash, token, aggregator)

    def diverged(self) -> None:
        raise AssertionError("the two sides decided different texts")

    def round_trip_s(self, size: int) -> float:
        return 2 * self._latency_s

    async def drain(self) -> None:
        return


class Deaf(DelayedLink):
    """A connection that lives and takes nothing in."""

    def send_draft(self, draft: Draft, decided: int, decided_hash: int) -> None:
        return

    async def drain(self) -> None:
        await asyncio.Event().wait()


def deaf_generation(plan: Plan) -> Generation:
    drafter = SimulatedDrafter("device", plan, Script(3), lambda: 0.02)
    generation = Generation("device", plan, drafter, NoTrace(), vocabulary=32, patience_s=5.0)
    generation.connect(Deaf(random.Random(0), 0.0, 0.0))
    return generation


def test_a_side_that_takes_nothing_in_is_given_up() -> None:
    async def body() -> float:
        generation = deaf_generation(plan_for("coupled", Placement.BOTH, 0.8, 1))
        with pytest.raises(GenerationError, match="took nothing in for 5 s"):
            await generation.run()
        return asyncio.get_running_loop().time()

    assert run(body()) == pytest.approx(5.02, abs=0.1)


def test_a_stop_does_not_wait_for_a_side_that_takes_nothing_in() -> None:
    async def body() -> float:
        generation = deaf_generation(plan_for("coupled", Placement.BOTH, 0.8, 1))
        asyncio.get_running_loop().call_later(1.0, generation.stop)
        assert await generation.run() is Finish.CANCELLED
        return asyncio.get_running_loop().time()

    assert run(body()) == pytest.approx(1.0)


async def generate(plan: Plan, script: Script, seed: int) -> tuple[list[int], list[int], float]:
    """One run: both sides' decided tokens, and the virtual seconds it took."""
    chance = random.Random(seed)
    latency_s = chance.choice([0.0, 0.01, 0.1, 0.3])
    jitter_s = latency_s * chance.choice([0.0, 0.2, 1.0])
    sides: dict[Side, Generation] = {}
    links: dict[Side, DelayedLink] = {}
    for side in SIDES:
        mean_s = chance.choice([0.001, 0.02, 0.05, 0.2])
        delays = random.Random(chance.random())
        drafter = SimulatedDrafter(
            side, plan, script, lambda d=delays, m=mean_s: m * d.uniform(0.2, 2)
        )
        sides[side] = Generation(side, plan, drafter, NoTrace(), vocabulary=script.vocabulary)
        links[side] = DelayedLink(chance, latency_s, jitter_s)
    links["device"].receiver, links["cloud"].receiver = sides["cloud"], sides["device"]
    for side, generation in sides.items():
        generation.connect(links[side])
    await asyncio.gather(*(generation.run() for generation in sides.values()))
    device, cloud = (sides[s].line.tokens[: sides[s].decided] for s in SIDES)
    assert sides["device"].counts.divergences == 0
    return device, cloud, asyncio.get_running_loop().time()


def plan_for(rule: str, placement: Placement, temperature: float, seed: int, **more: int) -> Plan:
    sampler = Sampler(temperature=temperature)
    return Plan(
        seed, sampler, rule, placement, "topp:0.95", max_tokens=24, stop_tokens=(0,), **more
    )


SIDES: tuple[Side, Side] = ("device", "cloud")
PLACEMENTS = {
    "coupled": list(Placement),
    "algorithm1": [p for p in Placement if p is not Placement.BOTH],
}
CASES = [
    (rule, placement, temperature)
    for rule, temperature in itertools.product(PLACEMENTS, (0.0, 0.8))
    for placement in PLACEMENTS[rule]
]


def script_of(seed: int) -> Script:
    """From peaked to flat, and from sides that agree to sides that do not."""
    return Script(seed % 7, sharpness=2.0 + seed % 3, disagreement=0.3 * (seed % 5))


@functools.cache
def oracle_text(rule: str, temperature: float, seed: int) -> tuple[int, ...]:
    """The synchronous run's text, which both of its sides agree on."""
    plan = plan_for(rule, Placement.SYNC, temperature, seed)
    device, cloud, _ = run(generate(plan, script_of(seed), seed))
    assert device == cloud
    return tuple(device)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "placement", "temperature"), CASES)
def test_every_schedule_gives_the_synchronous_text(
    rule: str, placement: Placement, temperature: float
) -> None:
    for seed in range(100):
        oracle = oracle_text(rule, temperature, seed)
        plan = plan_for(rule, placement, temperature, seed, run_ahead=1 + seed % 32)
        device, cloud, _ = run(generate(plan, script_of(seed), seed + 1000))
        assert tuple(device) == oracle, f"the device differs from the oracle in schedule {seed}"
        assert tuple(cloud) == oracle, f"the cloud differs from the oracle in schedule {seed}"


def test_the_oracle_depends_on_seed_and_temperature() -> None:
    """The comparison above could not fail if all texts were one."""
    texts = {oracle_text("coupled", 0.8, seed) for seed in range(20)}
    assert len(texts) == 20
    rules = [oracle_text(rule, 0.8, seed) for seed in range(10) for rule in PLACEMENTS]
    assert len(set(rules)) > 15


def test_speculation_hides_the_round_trip() -> None:
    """Two equal sides, 50 ms a draft, 300 ms of round trip: all but the first are hidden."""
    seconds = {}
    for placement in (Placement.SYNC, Placement.BOTH):
        plan = Plan(1, Sampler(temperature=0.8), "coupled", placement, max_tokens=24)
        script = Script(1, disagreement=0.0, stop=0.0)
        seconds[placement] = run(steady_generation(plan, script, 0.05, 0.15))
    floor = 24 * 0.05
    assert seconds[Placement.SYNC] == pytest.approx(24 * (0.3 + 0.05), rel=0.05)
    assert seconds[Placement.BOTH] == pytest.approx(floor + 0.15, rel=0.05)


async def steady_generation(plan: Plan, script: Script, decode_s: float, latency_s: float) -> float:
    """The virtual seconds until the device has the text, with constant delays."""
    sides: dict[Side, Generation] = {}
    for side in SIDES:
        drafter = SimulatedDrafter(side, plan, script, lambda: decode_s)
        sides[side] = Generation(side, plan, drafter, NoTrace(), vocabulary=script.vocabulary)
    for side, remote in (("device", "cloud"), ("cloud", "device")):
        link = DelayedLink(random.Random(0), latency_s, 0.0)
        link.receiver = sides[remote]
        sides[side].connect(link)
    cloud = asyncio.create_task(sides["cloud"].run())
    await sides["device"].run()
    elapsed_s = asyncio.get_running_loop().time()
    await cloud
    return elapsed_s
