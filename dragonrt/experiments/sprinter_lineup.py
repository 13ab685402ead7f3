"""The ways of drafting and verifying that SPRINTER's Table 2 compares, on one pair of models.

Both sides are in this process and go on from the same prompt, without documents. On the virtual
clock a forward takes the given time, on the real one what it takes.
"""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import cast

from dragonrt.control.verifier import Verifier
from dragonrt.experiments.paced import PacedWorker
from dragonrt.experiments.paced_blocks import text_reader
from dragonrt.experiments.speculation import DRAFT, TARGET, TextModel
from dragonrt.language.model import LanguageModel
from dragonrt.language.preemption import Preemption
from dragonrt.language.reader import Mixture, Reader
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.runtime import main as programs
from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.model_predictor import ModelPredictor, Runs
from dragonrt.runtime.modes import speculative, sprinter
from dragonrt.runtime.modes.blocks import Answer, BlockAsking
from dragonrt.runtime.modes.speculative import BlockShape, SpeculativePlan
from dragonrt.runtime.modes.sprinter import CODEC, SprinterPlan
from dragonrt.runtime.worker import ModelWorker
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.speculative import CoupledSpeculation
from dragonrt.sampling.stopping import AdaEDL, SpecDecPlusPlus
from dragonrt.side import Side
from dragonrt.simulation import loop
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.pair import SimulatedCloud, SimulatedDevice, SimulatedSide, linked_device

SPECULATIVE, SPECDEC, ADAEDL = "speculative", "SpecDec++", "AdaEDL"
PIPELINED = "coupled, pipelined"
SPRINTERS = {"SPRINTER": 0.5, "SPRINTER, τ = 0.3": 0.3}
"""Thresholds; the first is the paper's."""
METHODS = (SPECULATIVE, SPECDEC, ADAEDL, *SPRINTERS, PIPELINED)
"""The paper's, and the speculative mode as it comes: coupled noise, blocks drafted ahead."""

LENGTH, LONGEST = 4, 16
"""Tokens of a block of fixed length, and of one that a stopping rule ends."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a forward of each model (None: what it takes, on the real clock), and rtt."""

    forward_s: dict[Side, float] | None
    rtt_s: float

    def emulate(self, stream: Stream) -> Stream:
        """The stream as slow as this link."""
        return EmulatedStream(stream, *LinkProfile(latency_s=self.rtt_s / 2).models("device"))


@dataclass(frozen=True, slots=True)
class Measured:
    """One answer; `read` is how many tokens behind the prompt each side's model was fed."""

    answer: Answer
    read: dict[Side, int]


class CountingReader(Reader):
    """Counts the tokens that its model is fed."""

    fed = 0

    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, preemption: Preemption
    ) -> list[Mixture]:
        self.fed += len(tokens) - self.kept(hashes, first)
        return super().read(tokens, hashes, first, preemption)


@dataclass(frozen=True, slots=True)
class Lineup:
    """A pair of models, and the heads that were trained for it."""

    models: dict[Side, LanguageModel]
    sprinter: Verifier
    specdec: Verifier

    @classmethod
    def load(cls) -> "Lineup":
        """The bundled pair; ControlError if no heads are bundled for it."""
        draft, target = LanguageModel.load(DRAFT), LanguageModel.load(TARGET)
        pair = (draft.fingerprint, target.fingerprint)
        return cls(
            {"device": draft, "cloud": target},
            Verifier.for_pair(*pair, "sprinter"),
            Verifier.for_pair(*pair, "specdec++"),
        )

    def plan(
        self, method: str, seed: int, sampler: Sampler, tokens: int, stop_tokens: tuple[int, ...]
    ) -> BlockPlan:
        """How a method makes an answer of at most that many tokens."""
        shapes = {
            SPECULATIVE: BlockShape(length=LENGTH, outstanding=1),
            SPECDEC: BlockShape(
                length=LONGEST,
                stopping=SpecDecPlusPlus(LONGEST),
                acceptance=self.specdec,
                outstanding=1,
            ),
            ADAEDL: BlockShape(length=LONGEST, stopping=AdaEDL(LONGEST), outstanding=1),
            PIPELINED: BlockShape(),
        }
        if method in SPRINTERS:
            threshold = SPRINTERS[method]
            return SprinterPlan(
                seed=seed,
                sampler=sampler,
                max_tokens=tokens,
                stop_tokens=stop_tokens,
                threshold=threshold,
            )
        exact = method == PIPELINED
        return SpeculativePlan(
            seed=seed,
            sampler=sampler,
            rule="coupled" if exact else "rejection",
            codec="ids" if exact else CODEC,
            max_tokens=tokens,
            stop_tokens=stop_tokens,
            shape=shapes[method],
        )

    def answer(self, plan: BlockPlan, prompt: Sequence[int], pace: Pace) -> Measured:
        """One answer behind the prompt."""
        run = programs.run if pace.forward_s is None else loop.run
        return run(self._answer(plan, prompt, pace))

    async def _answer(self, plan: BlockPlan, prompt: Sequence[int], pace: Pace) -> Measured:
        readers: dict[Side, CountingReader] = {}

        async def side_of(side: Side) -> SimulatedSide:
            model = self.models[side]
            worker: Runs
            if pace.forward_s is None:
                worker = await stack.enter_async_context(ModelWorker(side))
            else:
                worker = PacedWorker(pace.forward_s[side])

            def predictor(*_: object) -> ModelPredictor:
                reader = text_reader(model, prompt, plan.seed, CountingReader)
                readers[side] = cast(CountingReader, reader)
                return ModelPredictor(worker, reader)

            script = Script(0, vocabulary=model.vocabulary)
            return SimulatedSide(side, lambda _: script, make_predictor=predictor)

        async with AsyncExitStack() as stack:
            serving = SimulatedCloud(await side_of("cloud"))
            device_side = await side_of("device")
            async with linked_device(serving, device_side, pace.emulate) as device:
                given = await self._asking(device, plan).ask("")
            await serving.wait_idle()
        return Measured(given, {side: reader.fed for side, reader in readers.items()})

    def _asking(self, device: SimulatedDevice, plan: BlockPlan) -> BlockAsking:
        if isinstance(plan, SprinterPlan):
            begin = sprinter.beginning(device.side, device.connector, self.sprinter)
            return begin(plan, lambda decision: None, lambda text: None)
        if isinstance(plan, SpeculativePlan):
            start = speculative.beginning(device.side, device.connector)
            return start(plan, lambda decision: None, lambda text: None)
        raise TypeError(f"{plan} is of no mode in this line-up")

    def target_text(
        self,
        prompt: Sequence[int],
        seed: int,
        sampler: Sampler,
        tokens: int,
        stop_tokens: tuple[int, ...],
    ) -> "Decoded":
        """What the target alone says behind the prompt, and the real seconds that it took."""
        rule = CoupledSpeculation(Noise(seed), sampler)
        model = TextModel(self.models["cloud"], prompt, tokens)
        decoded = Decoded()
        start_s = time.perf_counter()
        text = decoded.tokens
        while len(text) < tokens and set(stop_tokens).isdisjoint(text):
            p = rule.shape(model.after(text, len(text))[0])
            text.append(rule.verify(len(text), [], None, [p]).token)
        decoded.seconds = time.perf_counter() - start_s
        return decoded


@dataclass(slots=True)
class Decoded:
    """Tokens that one model decoded by itself."""

    tokens: list[int] = field(default_factory=list)
    seconds: float = 0.0
