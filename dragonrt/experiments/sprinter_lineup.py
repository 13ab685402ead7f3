"""The ways of drafting and verifying that SPRINTER's Table 2 compares, on one pair of models.

Both sides are in this process and go on from the same prompt, without documents. On the virtual
clock a forward takes the given time, on the real one what it takes.
"""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import cast

from dragonrt.control.verifier import Verifier
from dragonrt.experiments.arena import AnyPlan, Outcome, linked
from dragonrt.experiments.sides import run, text_side, worker
from dragonrt.experiments.speculation import alone, model_pair
from dragonrt.language.model import LanguageModel
from dragonrt.language.preemption import Preemption
from dragonrt.language.reader import Mixture, Reader
from dragonrt.link.profile import LinkProfile
from dragonrt.runtime.modes.speculative import BlockShape, SpeculativePlan
from dragonrt.runtime.modes.sprinter import CODEC, SprinterPlan
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.stopping import AdaEDL, SpecDecPlusPlus
from dragonrt.sampling.verification import CoupledSpeculation
from dragonrt.side import Side
from dragonrt.training.model_pair import ModelPair

SPECULATIVE, SPECDEC, ADAEDL = "speculative", "SpecDec++", "AdaEDL"
PIPELINED = "coupled, pipelined"
SPRINTERS = {"SPRINTER": 0.5, "SPRINTER, τ = 0.3": 0.3}
"""Thresholds; the first is the paper's."""
METHODS = (SPECULATIVE, SPECDEC, ADAEDL, *SPRINTERS, PIPELINED)
"""The paper's, and the speculative mode as it comes: coupled noise, blocks drafted ahead."""

LENGTH, LONGEST = 4, 16
"""Tokens of a block of fixed length, and of one that a stopping rule ends."""


class CountingReader(Reader):
    """Counts the tokens that its model is fed."""

    fed = 0

    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, preemption: Preemption
    ) -> list[Mixture]:
        self.fed += len(tokens) - self.kept(hashes, first)
        return super().read(tokens, hashes, first, preemption)


@dataclass(frozen=True, slots=True)
class SprinterLineup:
    """A pair of models, and the heads that were trained for it."""

    pair: ModelPair
    sprinter: Verifier
    specdec: Verifier

    @classmethod
    def load(cls) -> "SprinterLineup":
        """The bundled pair; ModelError if no heads are bundled for it."""
        pair = model_pair()
        names = (pair.draft.fingerprint, pair.target.fingerprint)
        sprinter, specdec = (Verifier.for_pair(*names, kind) for kind in ("sprinter", "specdec++"))
        return cls(pair, sprinter, specdec)

    def plan(
        self, method: str, seed: int, sampler: Sampler, tokens: int, stop_tokens: tuple[int, ...]
    ) -> AnyPlan:
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

    def answer(
        self,
        plan: AnyPlan,
        prompt: Sequence[int],
        rtt_s: float,
        forward_s: dict[Side, float] | None,
    ) -> tuple[Outcome, dict[Side, int]]:
        """One answer behind the prompt, and how many tokens behind it each model was fed.

        A forward takes `forward_s` virtual seconds, or (None) what it takes on the real clock.
        """
        return run(self._answer(plan, prompt, rtt_s, forward_s), virtual=forward_s is not None)

    async def _answer(
        self,
        plan: AnyPlan,
        prompt: Sequence[int],
        rtt_s: float,
        forward_s: dict[Side, float] | None,
    ) -> tuple[Outcome, dict[Side, int]]:
        models: dict[Side, LanguageModel] = {"device": self.pair.draft, "cloud": self.pair.target}
        link = LinkProfile(latency_s=rtt_s / 2)
        async with AsyncExitStack() as stack:
            sides = {}
            for side, model in models.items():
                runs = await stack.enter_async_context(
                    worker(side, forward_s[side] if forward_s is not None else None)
                )
                sides[side] = text_side(side, model, prompt, plan.seed, runs, CountingReader)
            device, cloud = sides.values()
            arena = await stack.enter_async_context(
                linked(device, [cloud], link, verifier=self.sprinter)
            )
            given = await arena.ask(plan)
        return given, {side: cast(CountingReader, sides[side].reader).fed for side in sides}

    def target_text(
        self,
        prompt: Sequence[int],
        seed: int,
        sampler: Sampler,
        tokens: int,
        stop_tokens: tuple[int, ...],
    ) -> tuple[list[int], float]:
        """What the target alone says behind the prompt, and the real seconds that it took."""
        rule = CoupledSpeculation(Noise(seed), sampler)
        start_s = time.perf_counter()
        text = alone(self.pair.target, prompt, rule, tokens, stop_tokens)
        return text, time.perf_counter() - start_s
