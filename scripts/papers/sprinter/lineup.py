"""The ways of drafting and verifying that SPRINTER's Table 2 compares, on one pair of models.

Both sides are in this process and go on from the same prompt, without documents. On the virtual
clock a forward takes the given time, on the real one what it takes.
"""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from dragonrt.backends.backend import Preemption
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Mixture, Reader
from dragonrt.control.verifier import Verifier
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings, SpeculativeSettings, SprinterSettings, Stopping
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.verification import CoupledSpeculation
from dragonrt.side import Side
from scripts.papers.arena import Given
from scripts.papers.model_sides import engine, reading_side, text_reader
from scripts.papers.speculation import alone, model_pair
from scripts.papers.virtual_arena import linked
from scripts.train.controllers.model_pair import ModelPair
from scripts.train.controllers.prompt import Prompt

SPECULATIVE, SPECDEC, ADAEDL = "speculative", "SpecDec++", "AdaEDL"
PIPELINED, DECODING = "coupled, pipelined", "coupled, the cloud decodes"
SPRINTER = "SPRINTER"
SPRINTERS = {SPRINTER: 0.5, "SPRINTER, τ = 0.3": 0.3}
"""Thresholds; the first is the paper's."""
METHODS = (SPECULATIVE, SPECDEC, ADAEDL, *SPRINTERS, PIPELINED, DECODING)
"""The paper's, and the speculative mode by default: coupled noise, blocks drafted ahead, and a
cloud that decodes while no block waits; and without that."""

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
    def load(cls, draft: str, target: str) -> "SprinterLineup":
        """Load the pair of these names; raises ControlError if there are no heads for it."""
        pair = model_pair(draft, target)
        names = (pair.draft.fingerprint, pair.target.fingerprint)
        sprinter, specdec = (Verifier.for_pair(*names, kind) for kind in ("sprinter", "specdec++"))
        return cls(pair, sprinter, specdec)

    def head(self, method: str) -> Verifier | None:
        """Return the head that judges each drafted token, if the method has one."""
        if method in SPRINTERS:
            return self.sprinter
        return self.specdec if method == SPECDEC else None

    async def answer(
        self,
        method: str,
        question: Question,
        prompt: Sequence[int],
        rtt_s: float,
        forward_s: dict[Side, float] | None,
    ) -> tuple[Given, dict[Side, int]]:
        """Return an answer behind the prompt, and how many tokens behind it each model was fed.

        A forward takes `forward_s` virtual seconds, or (None) what it takes on the real clock.
        """
        models: dict[Side, LanguageModel] = {"device": self.pair.draft, "cloud": self.pair.target}
        head = self.head(method)
        trained: dict[str, Any] = {} if head is None else {"verifier": head}
        readers = {
            side: text_reader(model, prompt, question.seed, CountingReader)
            for side, model in models.items()
        }
        async with AsyncExitStack() as stack:
            device, cloud = (
                reading_side(side, model, partial(_given, readers[side]))
                for side, model in models.items()
            )
            for side in (device, cloud):
                if forward_s is not None:
                    side.decode_s = forward_s[side.side]
                else:
                    side.engine = await stack.enter_async_context(engine())
            link = LinkProfile(latency_s=rtt_s / 2)
            arena = await stack.enter_async_context(linked(device, [cloud], link))
            given = await arena.ask(question, settings_of(method), **trained)
        return given, {side: reader.fed for side, reader in readers.items()}

    def target_text(self, question: Question, prompt: Prompt) -> tuple[list[int], float]:
        """Return the target's own text behind the prompt, and the real seconds that it took."""
        rule = CoupledSpeculation(Noise(question.seed), question.sampler)
        start_s = time.perf_counter()
        text = alone(self.pair.target, prompt, rule, question.max_tokens)
        return text, time.perf_counter() - start_s


def _given(reader: Reader, question: Question) -> Reader:
    return reader


def settings_of(method: str) -> Settings:
    """Return how a method makes an answer."""
    if method in SPRINTERS:
        return SprinterSettings(threshold=SPRINTERS[method])
    if method in (PIPELINED, DECODING):
        return SpeculativeSettings(draft="model", cloud_decodes=method == DECODING)
    stopping: dict[str, Stopping] = {SPECDEC: "specdec++", ADAEDL: "adaedl"}
    return SpeculativeSettings(
        draft="model",
        rule="rejection",
        codec=SprinterSettings().codec,
        block_tokens=LONGEST if method in stopping else LENGTH,
        stopping=stopping.get(method),
        pipelined=False,
    )
