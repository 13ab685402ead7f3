"""The one way to get an answer in experiments and benchmarks.

An arena is a device that is connected to the other sides of its answers: a cloud, or several
workers; in this process and in virtual time (`linked`, `played`), or in real processes (see
`sides.LoadedSide`). It asks questions by any mode's plan and says what the answers cost. Nothing
else in these experiments knows how sides are connected and asked.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.modes import dragon, federated, speculative, sprinter
from dragonrt.runtime.modes.dragon import OnLoss
from dragonrt.runtime.outcome import Answer, Asking, OnDecision, OnNotice
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.preparing import Preparer
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import NoTrace, Trace
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation import loop
from dragonrt.simulation.drafter import (
    AcceptanceDrafter,
    Acceptances,
    Script,
    SimulatedDrafter,
    TimedDrafter,
)
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide, linked_device

if TYPE_CHECKING:
    from dragonrt.chat.conversation import Conversation
    from dragonrt.runtime.local_side import LocalSide
    from dragonrt.runtime.modes.sprinter import TokenVerifier

AnyPlan = Plan | speculative.SpeculativePlan | sprinter.SprinterPlan | federated.FederatedPlan

Uplink = Callable[[], float]
"""The uplink's rate now, in bit/s."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer and what it cost; there is at least one token. Times are the device's clock's."""

    answer: Answer

    @property
    def tokens(self) -> list[int]:
        """The tokens, the stop token included."""
        return self.answer.tokens

    @property
    def counts(self) -> Any:
        """What the mode counted on the way."""
        return self.answer.counts

    @property
    def first_s(self) -> float:
        """From the question to the first token."""
        return self.answer.decisions[0].time_s - self.answer.asked_s

    @property
    def seconds(self) -> float:
        """From the question to the last token."""
        return self.answer.decisions[-1].time_s - self.answer.asked_s

    @property
    def between_s(self) -> float | None:
        """Seconds per token after the first; None where there is no other."""
        later = len(self.answer.decisions) - 1
        return (self.seconds - self.first_s) / later if later else None

    @property
    def bytes_sent(self) -> int:
        """On the device's uplinks, probes included."""
        return self.answer.bytes_sent

    @property
    def wire_bytes(self) -> int:
        """In both directions."""
        return self.answer.bytes_sent + self.answer.bytes_received

    @property
    def compared(self) -> dict[Side, tuple[int, int]]:
        """Where both sides draft: how many of a side's drafts became target tokens, of how many."""
        own, other = self.counts.own_compared, self.counts.other_compared
        return {
            "device": (self.counts.own_accepted, own),
            "cloud": (self.counts.other_accepted, other),
        }

    def accepted(self, side: Side) -> float | None:
        """The share of a side's drafts that became target tokens; None where none could."""
        accepted, compared = self.compared[side]
        return accepted / compared if compared else None


@dataclass(frozen=True, slots=True)
class Arena:
    """A connected device. `rate` is told to controllers, `verifier` to answers by a sprinter."""

    side: Preparer
    connectors: tuple[Connector, ...]
    rate: Uplink | None = None
    verifier: "TokenVerifier | None" = None

    async def ask(self, plan: AnyPlan, question: str = "", *, on_loss: OnLoss = "alone") -> Outcome:
        """The answer as the plan has it; DragonError if this side cannot give it."""
        asking = self._asking(plan, lambda decision: None, lambda text: None, on_loss)
        return Outcome(await asking.ask(question))

    async def ask_long(self, plan: Plan, question: str, tokens: int) -> Outcome:
        """An answer of exactly so many tokens, for nothing stops it."""
        endless = replace(plan, max_tokens=tokens, stop_tokens=())
        return await self.ask(endless, question, on_loss="wait")

    def _asking(
        self, plan: AnyPlan, on_decision: OnDecision, on_notice: OnNotice, on_loss: OnLoss
    ) -> Asking[Answer]:
        cloud = self.connectors[0]
        match plan:
            case Plan():
                return dragon.beginning(self.side, cloud, on_loss)(plan, on_decision, on_notice)
            case speculative.SpeculativePlan():
                begin = speculative.beginning(self.side, cloud, on_loss, self.rate)
                return begin(plan, on_decision, on_notice)
            case federated.FederatedPlan():
                members = [
                    federated.Member(f"worker {number}", connector)
                    for number, connector in enumerate(self.connectors)
                ]
                return federated.beginning(self.side, members)(plan, on_decision, on_notice)
            case sprinter.SprinterPlan():
                if self.verifier is None:
                    raise ValueError("an answer by a sprinter needs a verifier")
                sprint = sprinter.beginning(self.side, cloud, self.verifier, on_loss)
                return sprint(plan, on_decision, on_notice)


@dataclass(frozen=True, slots=True)
class RealArena(Arena):
    """A device of a real process, which can hold a conversation, too."""

    side: "LocalSide"

    def conversation(
        self, plan: Plan, stops: Sequence[str] = (), on_loss: OnLoss = "alone"
    ) -> "Conversation[Plan, dragon.Answer]":
        """A conversation without history, with the plan's seed."""
        from dragonrt.chat.conversation import Conversation

        begin = dragon.beginning(self.side, self.connectors[0], on_loss)
        return Conversation(self.side.model, plan, begin, plan.seed, tuple(stops))

    async def ask_each(
        self, plan: Plan, questions: Sequence[str], stops: Sequence[str] = ()
    ) -> list[Outcome]:
        """Every question by itself, one after another, as costs are measured."""
        return [
            Outcome((await self.conversation(plan, stops).ask(question)).answer)
            for question in questions
        ]

    async def ask_at_once(
        self, plan: Plan, questions: Sequence[str], stops: Sequence[str] = ()
    ) -> list[Outcome]:
        """All questions at the same time: the same texts in less time, but no costs to measure."""
        asking = (self.conversation(plan, stops).ask(question) for question in questions)
        return [Outcome(reply.answer) for reply in await asyncio.gather(*asking)]

    def round_trip_s(self) -> float | None:
        """The measured round trip to the cloud; None where it was lost."""
        peer = self.connectors[0].peer
        return None if peer is None else peer.round_trip_s()


def scripted(
    side: Side, script: Script, forward_s: float, trace: Trace | None = None
) -> SimulatedSide:
    """A side that drafts by its script, each forward in so many seconds."""

    def drafter(side: Side, plan: Plan, script: Script, _: object) -> TimedDrafter:
        return SimulatedDrafter(side, plan, script, lambda: forward_s)

    return SimulatedSide(side, lambda _: script, make_drafter=drafter, trace=trace or NoTrace())


def replaying(side: Side, acceptances: Acceptances, forward_s: float) -> SimulatedSide:
    """A side whose drafts are accepted as given, for plans at temperature 0 with `topp:1`."""

    def drafter(side: Side, plan: Plan, _: object, __: object) -> TimedDrafter:
        return AcceptanceDrafter(side, plan, acceptances, lambda: forward_s)

    script = Script(0, vocabulary=AcceptanceDrafter.VOCABULARY)
    return SimulatedSide(side, lambda _: script, make_drafter=drafter)


JITTER_PERIOD_S = 20 * math.pi
"""Of a sinusoidal jitter (DRAGON §7.3)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds per draft on either side and, without the jitter, of a round trip.

    The one-way delay swings sinusoidally by `jitter` of itself; an answer is asked for `start_s`
    seconds into the swing.
    """

    device_s: float
    cloud_s: float
    rtt_s: float
    jitter: float = 0.0
    start_s: float = 0.0

    @property
    def forward_s(self) -> dict[Side, float]:
        """Of each side."""
        return {"device": self.device_s, "cloud": self.cloud_s}

    @property
    def link(self) -> LinkProfile:
        """The link as slow as this."""
        return LinkProfile(
            latency_s=self.rtt_s / 2,
            jitter_s=self.jitter * self.rtt_s / 2,
            jitter_kind="sinusoidal",
            period_s=JITTER_PERIOD_S,
        )


@asynccontextmanager
async def linked(
    device: SimulatedSide,
    clouds: Sequence[SimulatedSide],
    link: LinkProfile | None = None,
    link_seed: int = 0,
    verifier: "TokenVerifier | None" = None,
) -> AsyncIterator[Arena]:
    """`device` with a link of its own to each of `clouds`, in this process, until the context ends.

    Links do not fail; without `link` nothing is emulated. `link_seed` draws the jitter and the
    course of the rates; a controller sees the first link's true rate.
    """
    serving = [SimulatedCloud(cloud) for cloud in clouds]
    connectors: list[Connector] = []
    rate: Uplink | None = None
    async with AsyncExitStack() as stack:
        for cloud in serving:
            emulate: Callable[[Stream], Stream] = _unchanged
            if link is not None:
                emulate, uplink = _emulation(link, link_seed)
                rate = rate or uplink
            connected = await stack.enter_async_context(linked_device(cloud, device, emulate))
            connectors.append(connected.connector)
        yield Arena(device, tuple(connectors), rate, verifier)
    for cloud in serving:
        await cloud.wait_idle()


def _unchanged(stream: Stream) -> Stream:
    return stream


def _emulation(link: LinkProfile, seed: int) -> tuple[Callable[[Stream], Stream], Uplink]:
    """What makes a stream as slow as the link, and the uplink's rate from now on."""
    up, down = link.models("device", seed)
    clock = asyncio.get_running_loop().time
    made_s = clock()

    def rate() -> float:
        return up.rate_at(clock() - made_s) or math.inf

    return lambda stream: EmulatedStream(stream, up, down), rate


def played(
    plan: AnyPlan,
    device: SimulatedSide,
    *clouds: SimulatedSide,
    link: LinkProfile | None = None,
    link_seed: int = 0,
    start_s: float = 0.0,
) -> Outcome:
    """One answer in virtual time, asked for `start_s` seconds after the sides were connected."""

    async def answer() -> Outcome:
        async with linked(device, clouds, link, link_seed) as arena:
            await asyncio.sleep(start_s)
            return await arena.ask(plan)

    return loop.run(answer())


def replayed(acceptances: Acceptances, placement: Placement, pace: Pace, run_ahead: int) -> Outcome:
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
    sides = (replaying(side, acceptances, forward) for side, forward in pace.forward_s.items())
    return played(plan, *sides, link=pace.link, start_s=pace.start_s)
