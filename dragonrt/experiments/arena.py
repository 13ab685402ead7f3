"""The one way to get an answer in experiments and benchmarks.

An arena is a device that is connected to the other sides of its answers: a cloud, or several
workers; in this process and in virtual time (`linked`, `played`), or in real processes (see
`sides.LoadedSide`). It asks questions in any mode and says what the answers cost. Nothing else in
these experiments knows how sides are connected and asked.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dragonrt.control import controller
from dragonrt.control.scheduler import Aggregator
from dragonrt.experiments.acceptances import ACCEPTANCE_VOCABULARY, AcceptanceModel, Acceptances
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes.catalogue import Kit
from dragonrt.modes.question import GREEDY, Question
from dragonrt.modes.settings import DragonSettings, Settings, SpeculativeSettings
from dragonrt.modes.told import MARKER
from dragonrt.runtime.asking import Answer, Asking
from dragonrt.runtime.connector import Connector, Reachable
from dragonrt.runtime.preparing import Preparer
from dragonrt.side import Side
from dragonrt.simulation import loop
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.simulation.scripted import (
    Script,
    SimulatedContext,
    SimulatedModel,
)
from dragonrt.traces.counts import AnswerCounts, Counts
from dragonrt.traces.file import Sink

if TYPE_CHECKING:
    from dragonrt.runtime.local_side import LocalSide
    from dragonrt.service.conversation import Conversation


@dataclass(frozen=True)
class Given:
    """An answer and what it cost; there is at least one token. Times are the device's clock's."""

    answer: Answer

    @property
    def tokens(self) -> list[int]:
        """The tokens, the stop token included."""
        return self.answer.tokens

    @cached_property
    def told(self) -> AnswerCounts:
        """What happened on the way."""
        return AnswerCounts.of(self.answer.records)

    @property
    def counts(self) -> Counts:
        """What happened on the way, in numbers."""
        return self.told.counts

    @property
    def first_s(self) -> float:
        """From the question to the first token."""
        return self.answer.decisions[0][0] - self.answer.asked_s

    @property
    def seconds(self) -> float:
        """From the question to the last token."""
        return self.answer.decisions[-1][0] - self.answer.asked_s

    @property
    def between_s(self) -> float | None:
        """Seconds per token after the first; None where there is no other."""
        later = len(self.tokens) - 1
        return (self.seconds - self.first_s) / later if later else None

    @property
    def wire_bytes(self) -> int:
        """In both directions, probes included."""
        return self.answer.bytes_sent + self.answer.bytes_received

    def accepted(self, side: Side) -> float | None:
        """The share of a side's drafts that became target tokens; None where none could."""
        compared = self.counts.compared[side]
        return self.counts.accepted[side] / compared if compared else None


@dataclass(frozen=True, slots=True)
class Arena:
    """A connected device; `rate` is the true uplink's bit/s at a time, told to controllers."""

    side: Preparer
    connectors: Mapping[str, Reachable]
    rate: Callable[[float], float] | None = None

    async def ask(self, question: Question, settings: Settings, **trained: Any) -> Given:
        """The answer; `trained` are heads for the pair of models, as `Kit` names them.

        Raises DragonError if this side cannot answer.
        """
        kit = self.kit(settings, **trained)
        return Given(await Asking(self.side, self.connectors, question, settings, kit).ask())

    def kit(self, settings: Settings, **trained: Any) -> Kit:
        """What this side brings to an answer."""
        kit = Kit(
            vocabulary=self.side.vocabulary,
            patience=self.side.patience,
            members=dict.fromkeys(self.connectors, 1.0),
            profile=self.side.profile,
            rate=self.rate,
            **trained,
        )
        if isinstance(settings, SpeculativeSettings) and settings.controller is not None:
            return replace(kit, controller=controller(settings.controller))
        return kit


@dataclass(frozen=True, slots=True)
class RealArena(Arena):
    """A device of a real process."""

    side: "LocalSide"

    def kit(self, settings: Settings, **trained: Any) -> Kit:
        """What this side brings to an answer."""
        marker = tuple(self.side.model.encode(MARKER))
        return Arena.kit(self, settings, marker=marker, **trained)

    def conversation(
        self, question: Question, settings: Settings, stops: Sequence[str] = ()
    ) -> "Conversation":
        """A conversation without history, with the question's seed."""
        from dragonrt.runtime.main import Device
        from dragonrt.service.conversation import Conversation

        device = Device(self.side, self.connectors, settings, self.kit(settings))
        return Conversation(device, question, question.seed, tuple(stops))

    async def ask_each(
        self,
        prompts: Sequence[str],
        question: Question,
        settings: Settings,
        stops: Sequence[str] = (),
    ) -> list[Given]:
        """Every prompt by itself, one after another, as costs are measured."""
        return [
            Given((await self.conversation(question, settings, stops).ask(prompt)).answer)
            for prompt in prompts
        ]

    async def ask_at_once(
        self,
        prompts: Sequence[str],
        question: Question,
        settings: Settings,
        stops: Sequence[str] = (),
    ) -> list[Given]:
        """All prompts at the same time: the same texts in less time, but no costs to measure."""
        asking = (self.conversation(question, settings, stops).ask(prompt) for prompt in prompts)
        return [Given(reply.answer) for reply in await asyncio.gather(*asking)]

    def round_trip_s(self) -> float | None:
        """The measured round trip to the cloud; None where it was lost."""
        (cloud,) = self.connectors.values()
        return None if cloud.peer is None else cloud.peer.round_trip_s


def scripted(
    side: Side, script: Script, forward_s: float, sinks: tuple[Sink, ...] = ()
) -> SimulatedSide:
    """A side that answers by its script, each forward in so many seconds."""
    return SimulatedSide(
        side, lambda _: script, make_context=lambda model, _: _steady(model, forward_s), sinks=sinks
    )


def replaying(side: Side, acceptances: Acceptances, forward_s: float) -> SimulatedSide:
    """A side whose drafts are accepted as given, at temperature 0 and under a lossless codec."""
    script = Script(0, vocabulary=ACCEPTANCE_VOCABULARY)
    return SimulatedSide(
        side,
        lambda _: script,
        make_model=lambda side, _: AcceptanceModel(side, acceptances.of(side)),
        make_context=lambda model, _: _steady(model, forward_s),
    )


def _steady(model: SimulatedModel, forward_s: float) -> SimulatedContext:
    return SimulatedContext(model, lambda: forward_s)


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
) -> AsyncIterator[Arena]:
    """`device` with a link of its own to each of `clouds`, in this process, until the context ends.

    Links do not fail; without `link` they take no time. `link_seed` draws the jitter and the
    course of the rates; a controller sees the first link's true rate.
    """
    serving = [SimulatedCloud(cloud) for cloud in clouds]
    names = ["cloud"] if len(clouds) == 1 else [f"worker {each}" for each in range(len(clouds))]
    connectors: dict[str, Connector] = {}
    link = link or LinkProfile()
    uplink, made_s = link.models("device", link_seed)[0], asyncio.get_running_loop().time()
    async with AsyncExitStack() as stack:
        for name, cloud in zip(names, serving, strict=True):
            emulate = emulated(link, link_seed)
            connected = await stack.enter_async_context(linked_device(cloud, device, emulate))
            connectors[name] = connected.connector
        yield Arena(device, connectors, lambda now: uplink.rate_at(now - made_s) or math.inf)
    for cloud in serving:
        await cloud.wait_idle()


def streamed_s(tokens: int, forward_s: float, rtt_s: float) -> float:
    """Until a device has so many tokens of an answer that the cloud gives alone, and streams.

    Reading the prompt gives the first one, as wherever answers are simulated.
    """
    return rtt_s + (tokens - 1) * forward_s


def emulated(link: LinkProfile, seed: int = 0) -> Callable[[Stream], Stream]:
    """What makes a device's streams as slow as the link."""
    return lambda stream: EmulatedStream(stream, *link.models("device", seed))


def played(
    question: Question,
    settings: Settings,
    device: SimulatedSide,
    *clouds: SimulatedSide,
    link: LinkProfile | None = None,
    link_seed: int = 0,
    start_s: float = 0.0,
) -> Given:
    """One answer in virtual time, asked for `start_s` seconds after the sides were connected."""

    async def answer() -> Given:
        async with linked(device, clouds, link, link_seed) as arena:
            await asyncio.sleep(start_s)
            return await arena.ask(question, settings)

    return loop.run(answer())


def replayed(acceptances: Acceptances, aggregator: Aggregator, pace: Pace, run_ahead: int) -> Given:
    """The answer of as many tokens as there are acceptances, without end tokens or following."""
    return played(
        Question(sampler=GREEDY, max_tokens=len(acceptances.device)),
        DragonSettings(aggregator=aggregator, codec="topp:1", run_ahead=run_ahead, follow=False),
        *(replaying(side, acceptances, each) for side, each in pace.forward_s.items()),
        link=pace.link,
        start_s=pace.start_s,
    )
