"""Ask questions in experiments and benchmarks: the one way to get an answer there.

An arena is a device that is connected to the other sides of its answers, a cloud or several
workers, either in virtual time or in real processes (`model_sides.LoadedSide`).
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from dragonrt.control.scheduler import Aggregator
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes import entry_of
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Prediction
from dragonrt.modes.question import GREEDY, Question
from dragonrt.modes.settings import Resources, Settings
from dragonrt.modes.speculative.settings import SpeculativeResources
from dragonrt.node.answers.client_session import ClientSession
from dragonrt.node.answers.model_session import Prefiller
from dragonrt.node.connections.connector import Connector
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.programs import Device, counterpart
from dragonrt.service.chat import Chat
from dragonrt.service.comparison import MeasuredAnswer as MeasuredAnswer
from dragonrt.side import Side
from dragonrt.testing import loop
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import (
    Script,
    ScriptedModel,
    SimulatedContext,
    SimulatedModel,
    SimulatedPrediction,
)
from dragonrt.traces.file import Sink


@dataclass(frozen=True, slots=True)
class Arena:
    """A device connected to clouds; `rate(time)` is the uplink's true bit/s, for controllers."""

    side: Prefiller
    connectors: Mapping[str, Connector]
    rate: Callable[[float], float] | None = None

    async def ask(self, question: Question, settings: Settings, **trained: Any) -> MeasuredAnswer:
        """Return the answer; `trained` replaces fields of the Resources, such as trained heads.

        Raises DragonError if this side cannot answer.
        """
        resources = self.resources(settings, **trained)
        return MeasuredAnswer(
            await ClientSession(self.side, self.connectors, question, settings, resources).ask()
        )

    def resources(self, settings: Settings, **trained: Any) -> Resources:
        """Return the Resources of the device in an answer, with the fields `trained` replaced."""
        others = {name: counterpart(1.0, hosts) for name, hosts in self.connectors.items()}
        resources: Resources = entry_of(settings).prepare(self.side, others, settings)
        rate: Any = {"rate": self.rate} if isinstance(resources, SpeculativeResources) else {}
        return replace(resources, **rate, **trained)


@dataclass(frozen=True, slots=True)
class RealArena(Arena):
    """An Arena whose device is a real side with a model, in real time."""

    side: LocalSide

    async def ask_each(
        self, prompts: Sequence[str], question: Question, settings: Settings
    ) -> list[MeasuredAnswer]:
        """Return an answer to each prompt, one after another, each without history or parts."""
        question = replace(question, parts="off")
        answers = []
        for prompt in prompts:
            device = Device(self.side, self.connectors, settings, self.resources(settings))
            reply = await Chat(device, question, question.seed, ()).ask(prompt)
            answers.append(MeasuredAnswer(reply.decoded))
        return answers


def emulated(link: LinkProfile, seed: int = 0) -> Callable[[Stream], Stream]:
    """Return a wrapper that delays a device's streams as the emulated link `link` does."""
    return lambda stream: EmulatedStream(stream, *link.models("device", seed))


def scripted(
    side: Side,
    script: Script,
    forward_s: float,
    sinks: tuple[Sink, ...] = (),
    make_model: Callable[[Side, Script], SimulatedModel] = ScriptedModel,
) -> SimulatedSide:
    """Return a simulated side whose predictions follow `script`; a forward takes `forward_s`."""
    return SimulatedSide(
        side,
        lambda _: script,
        make_model=make_model,
        make_context=lambda model, _: SimulatedContext(model, lambda: forward_s),
        sinks=sinks,
    )


@dataclass(frozen=True, slots=True)
class Acceptances:
    """Whether the draft of each step equals the target token, given for each side."""

    device: tuple[bool, ...]
    cloud: tuple[bool, ...]


VOCABULARY = 64


@dataclass(frozen=True, slots=True)
class AcceptanceModel(SimulatedModel):
    """A simulated model whose draft of a step is the target token exactly if `accepted` says so.

    Use it at temperature 0 with equal weights. The target follows from the prefix hash. A rejected
    draft has probability 0.6 and the target 0.4: in the mixture the target still is the likeliest.
    """

    side: Side
    accepted: tuple[bool, ...]

    @override
    def predict(self, step: int, prefix_hash: int) -> Prediction:
        target = prefix_hash % VOCABULARY
        p = np.zeros(VOCABULARY, dtype=np.float32)
        if self.accepted[step]:
            p[target] = 1.0
        else:
            p[target] = 0.4
            p[(target + (1 if self.side == "device" else 2)) % VOCABULARY] = 0.6
        return SimulatedPrediction(p, 0.0, np.zeros(1, dtype=np.float32))


JITTER_PERIOD_S = 20 * math.pi
"""Of a sinusoidal jitter (DRAGON §7.3)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of a simulated pair: seconds per draft of each side, and per round trip.

    The one-way delay swings sinusoidally by the fraction `jitter`; the question is asked `start_s`
    seconds after the swing began.
    """

    device_s: float
    cloud_s: float
    rtt_s: float
    jitter: float = 0.0
    start_s: float = 0.0

    @property
    def forward_s(self) -> dict[Side, float]:
        """Return the seconds per draft of each side."""
        return {"device": self.device_s, "cloud": self.cloud_s}

    @property
    def link(self) -> LinkProfile:
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
    """Yield an Arena of `device`, with one link to each of `clouds`, all in this process.

    Links do not fail; without `link` they take no time. `link_seed` draws the jitter and the rates
    over time; a controller sees the first link's true rate.
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
    """Return when a device has the first `tokens` tokens that a cloud alone streams, in seconds.

    Reading the prompt gives the first token, so that token takes no forward of its own.
    """
    return rtt_s + (tokens - 1) * forward_s


def played(
    question: Question,
    settings: Settings,
    device: SimulatedSide,
    *clouds: SimulatedSide,
    link: LinkProfile | None = None,
    link_seed: int = 0,
    start_s: float = 0.0,
) -> MeasuredAnswer:
    """Return an answer in virtual time, asked `start_s` seconds after the sides were connected."""

    async def answer() -> MeasuredAnswer:
        async with linked(device, clouds, link, link_seed) as arena:
            await asyncio.sleep(start_s)
            return await arena.ask(question, settings)

    return loop.run(answer())


def replayed(
    acceptances: Acceptances, aggregator: Aggregator, pace: Pace, run_ahead: int
) -> MeasuredAnswer:
    """Return an answer with a token per entry of `acceptances`, in mode `dragon` without follow."""
    script = Script(0, vocabulary=VOCABULARY)
    accepted = {"device": acceptances.device, "cloud": acceptances.cloud}
    return played(
        Question(sampler=GREEDY, max_tokens=len(acceptances.device)),
        DragonSettings(aggregator=aggregator, codec="topp:1", run_ahead=run_ahead, follow=False),
        *(
            scripted(
                side, script, forward_s, make_model=lambda at, _: AcceptanceModel(at, accepted[at])
            )
            for side, forward_s in pace.forward_s.items()
        ),
        link=pace.link,
        start_s=pace.start_s,
    )


def replayed_ms(
    acceptances: Acceptances, aggregator: Aggregator, pace: Pace, run_ahead: int
) -> float:
    """Return the milliseconds per token of `replayed`, from the first token to the last."""
    return 1e3 * (replayed(acceptances, aggregator, pace, run_ahead).between_s or 0.0)
