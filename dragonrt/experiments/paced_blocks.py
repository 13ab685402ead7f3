"""Answers of drafted blocks in virtual time: real models and messages, given delays and link.

The models' numbers are computed, so that acceptance and bits are real; a forward takes as long as
the pace says, however many tokens it reads.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dragonrt.experiments.paced import PacedWorker
from dragonrt.language.model import LanguageModel
from dragonrt.language.reader import Reader
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime import outcome
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.draft import start_hash
from dragonrt.runtime.model_predictor import ModelPredictor
from dragonrt.runtime.modes.blocks import Answer, BlockAsking
from dragonrt.runtime.modes.speculative import SpeculativePlan, beginning
from dragonrt.runtime.preparing import Preparer
from dragonrt.runtime.trace import NoTrace, Trace
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide, linked_device

A = TypeVar("A", bound=outcome.Answer)

Ask = Callable[[Preparer, Connector, Callable[[], float]], outcome.Asking[A]]
"""Begins an answer on the device; the last argument gives the uplink's rate now, in bit/s."""


@dataclass(frozen=True, slots=True)
class BlockPace:
    """Seconds per forward of the draft model and of the target, and the link between them.

    `link_seed` draws the link's jitter and the course of its rates.
    """

    draft_s: float
    target_s: float
    link: LinkProfile = field(default_factory=LinkProfile)
    link_seed: int = 0


class EventList:
    """A Trace in memory: the events as `runtime.trace` writes them, on the running loop's clock."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.events: list[dict[str, Any]] = []

    def event(self, session: int, event: str, **fields: Any) -> None:
        loop = asyncio.get_running_loop()
        record = {"t": loop.time(), "side": self._side, "session": session, "event": event}
        self.events.append(record | fields)

    def of(self, peer: str) -> "EventList":
        return self


def paced_side(
    side: Side,
    model: LanguageModel,
    prompt: Sequence[int],
    seed: int,
    forward_s: float,
    trace: Trace | None = None,
) -> SimulatedSide:
    """A side whose model goes on from the tokens of `prompt`, without documents.

    `seed` is the answer's.
    """

    def predictor(side: Side, script: Script, delay_s: Callable[[], float]) -> ModelPredictor:
        return ModelPredictor(PacedWorker(forward_s), text_reader(model, prompt, seed))

    script = Script(0, vocabulary=model.vocabulary)
    return SimulatedSide(side, lambda _: script, make_predictor=predictor, trace=trace or NoTrace())


def text_reader(
    model: LanguageModel, prompt: Sequence[int], seed: int, kind: type[Reader] = Reader
) -> Reader:
    """A reader of texts that go on from the tokens of `prompt`, without documents."""
    sequence = model.sequence([model.document_kv(())], 2 * len(prompt))
    return kind.behind(sequence, prompt, start_hash(seed))


def paced_answer(
    device: SimulatedSide, cloud: SimulatedSide, link: LinkProfile, link_seed: int, ask: Ask[A]
) -> A:
    """The answer over a link that does not fail; its times are virtual seconds."""

    async def answer() -> A:
        serving = SimulatedCloud(cloud)
        up, down = link.models("device", link_seed)
        made_s = asyncio.get_running_loop().time()

        def rate() -> float:
            return up.rate_at(asyncio.get_running_loop().time() - made_s) or math.inf

        def emulate(stream: Stream) -> Stream:
            return EmulatedStream(stream, up, down)

        async with linked_device(serving, device, emulate) as connected:
            given = await ask(device, connected.connector, rate).ask("")
        await serving.wait_idle()
        return given

    return run(answer())


def paced_speculation(
    draft: LanguageModel,
    target: LanguageModel,
    prompt: Sequence[int],
    plan: SpeculativePlan,
    pace: BlockPace,
) -> tuple[Answer, list[dict[str, Any]]]:
    """One answer by speculative decoding, and the device's trace of it.

    A controller of the plan sees the link's true rate.
    """
    trace = EventList("device")
    device = paced_side("device", draft, prompt, plan.seed, pace.draft_s, trace)
    cloud = paced_side("cloud", target, prompt, plan.seed, pace.target_s)

    def ask(side: Preparer, connector: Connector, rate: Callable[[], float]) -> BlockAsking:
        begin = beginning(side, connector, rate=rate)
        return begin(plan, lambda decision: None, lambda text: None)

    answer = paced_answer(device, cloud, pace.link, pace.link_seed, ask)
    return answer, trace.events
