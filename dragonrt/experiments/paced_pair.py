"""One answer of the real runtime in virtual time, where acceptance and all delays are given."""

import asyncio
import math
from dataclasses import dataclass

from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime.modes.dragon import Answer
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation.drafter import AcceptanceDrafter, Acceptances, Script
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import (
    MakeDrafter,
    SimulatedCloud,
    SimulatedSide,
    linked_device,
)

JITTER_PERIOD_S = 20 * math.pi
"""Of the sinusoidal jitter (DRAGON §7.3)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds per draft on either side and, without the jitter, of a round trip.

    The one-way delay swings sinusoidally by `jitter` of itself; the answer is asked for `start_s`
    seconds into the swing.
    """

    device_s: float
    cloud_s: float
    rtt_s: float
    jitter: float = 0.0
    start_s: float = 0.0

    def decode_s(self, side: Side) -> float:
        return self.device_s if side == "device" else self.cloud_s

    def emulate(self, stream: Stream) -> Stream:
        """The stream as slow as this link."""
        link = LinkProfile(
            latency_s=self.rtt_s / 2,
            jitter_s=self.jitter * self.rtt_s / 2,
            jitter_kind="sinusoidal",
            period_s=JITTER_PERIOD_S,
        )
        return EmulatedStream(stream, *link.models("device"))


def replay_acceptances(
    acceptances: Acceptances, placement: Placement, pace: Pace, run_ahead: int
) -> Answer:
    """The answer of as many tokens as there are acceptances, without end tokens or following."""
    plan = Plan(
        seed=0,
        sampler=Sampler(temperature=0.0),
        placement=placement,
        codec="topp:1",
        max_tokens=len(acceptances.device),
        run_ahead=run_ahead,
        follow=False,
    )

    def make(side: Side, plan: Plan, script: Script, delay_s: object) -> AcceptanceDrafter:
        return AcceptanceDrafter(side, plan, acceptances, lambda: pace.decode_s(side))

    return paced_answer(plan, Script(0, vocabulary=AcceptanceDrafter.VOCABULARY), make, pace)


def paced_answer(plan: Plan, script: Script, make: MakeDrafter, pace: Pace) -> Answer:
    """The answer of models that `make` makes, over the link of `pace`; times are virtual."""

    async def answer() -> Answer:
        cloud = SimulatedCloud(SimulatedSide("cloud", lambda _: script, make_drafter=make))
        side = SimulatedSide("device", lambda _: script, make_drafter=make)
        async with linked_device(cloud, side, pace.emulate) as device:
            await asyncio.sleep(pace.start_s)
            given = await device.asking(plan).ask("?")
        await cloud.wait_idle()
        return given

    return run(answer())


def seconds_per_token(answer: Answer) -> float:
    """Between the first token and the last."""
    times = [decision.time_s for decision in answer.decisions]
    return (times[-1] - times[0]) / (len(times) - 1)
