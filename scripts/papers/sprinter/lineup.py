"""The ways of drafting and verifying that SPRINTER's Table 2 compares, on one pair of models.

Both sides are in this process and go on from the same prompt, without documents. Time is virtual.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

from typing_extensions import override

from dragonrt import bundled
from dragonrt.backends.mixture import Mixture
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.control.trained import Verifier
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import CoupledSpeculation
from dragonrt.side import Side
from scripts.lab.arena import MeasuredAnswer, linked
from scripts.lab.model_pair import AnswerReader, ModelPair
from scripts.lab.model_sides import reading_side, text_reader
from scripts.lab.prompt import Prompt
from scripts.papers.speculation import RecallingReader, alone, model_pair

SPECULATIVE, DECODING = "speculative, L = 4", "coupled, the cloud decodes"
SPRINTER = "SPRINTER"
SPRINTERS = {SPRINTER: 0.5, "SPRINTER, τ = 0.3": 0.3}
"""Thresholds; the first is the paper's."""
LENGTHS = {f"speculative, L = {length}": length for length in (2, 4, 8, 16)}
COUPLED_LENGTHS = {f"{DECODING}, L = {length}": length for length in (2, 4, 8)}
RESOLUTION = 2
"""Of what is sent of a token: the best fixed one for DDQN's uplink. DDQN chooses its own."""
_PAPERS = SpeculativeSettings(rule="rejection", codec=f"qs:{RESOLUTION}", pipelined=False)
_OURS = SpeculativeSettings()
PAPERS: dict[str, Settings] = {
    **{name: replace(_PAPERS, block_tokens=length) for name, length in LENGTHS.items()},
    "heuristic": replace(_PAPERS, controller=f"heuristic:{RESOLUTION}"),
    "DDQN": replace(_PAPERS, controller="default"),
    **{name: SprinterSettings(threshold=tau, codec="qs:10") for name, tau in SPRINTERS.items()},
}
METHODS: dict[str, Settings] = PAPERS | {
    "coupled, pipelined": replace(_OURS, cloud_decodes=False),
    **{name: replace(_OURS, block_tokens=length) for name, length in COUPLED_LENGTHS.items()},
    f"{DECODING}, DDQN": replace(_OURS, controller="default"),
}
"""The papers', and the speculative mode by default: coupled noise, blocks drafted ahead, and a
cloud that decodes while no block waits; and without that."""


class CountingReader(RecallingReader):
    """Computes each prediction once, for all methods, and counts tokens as if it did not."""

    fed = 0
    held: Sequence[int] = ()

    @override
    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, *, hidden: bool = False
    ) -> list[Mixture]:
        same = sum(takewhile(bool, (a == b for a, b in zip(self.held, hashes, strict=False))))
        self.fed += len(tokens) - max(0, min(same, first) - 1)
        self.held = hashes
        return super().read(tokens, hashes, first, hidden=hidden)


Readers = dict[Side, CountingReader]


@dataclass(frozen=True, slots=True)
class SprinterLineup:
    """A pair of models, and the head that was trained for it."""

    pair: ModelPair
    sprinter: Verifier

    @classmethod
    def load(cls, draft: str, target: str, prompt: Prompt | None = None) -> "SprinterLineup":
        """Load the pair of these names as such a prompt is put to it.

        The head was trained with the target's adapter. Raises ControlError if there is none.
        """
        pair = model_pair(draft, target)
        sprinter = Verifier.for_pair(pair.draft.fingerprint, pair.target.fingerprint)
        return cls(model_pair(draft, target, prompt), sprinter)

    def head(self, method: str) -> Verifier | None:
        """Return the head that judges each drafted token, if the method has one."""
        return self.sprinter if isinstance(METHODS[method], SprinterSettings) else None

    def readers(self, prompt: Sequence[int], seed: int) -> Readers:
        """Return readers of both models behind the prompt, for answers of that seed."""
        sides: dict[Side, LanguageModel] = {"device": self.pair.draft, "cloud": self.pair.target}
        return {
            side: text_reader(model, prompt, seed, CountingReader) for side, model in sides.items()
        }

    async def answer(
        self,
        method: str,
        question: Question,
        readers: Readers,
        link: LinkProfile,
        forward_s: dict[Side, float],
    ) -> tuple[MeasuredAnswer, dict[Side, int]]:
        """Return an answer by the readers, and how many tokens behind the prompt each was fed."""
        head, settings = self.head(method), METHODS[method]
        trained: dict[str, Any] = {} if head is None else {"verifier": head}
        if isinstance(settings, SpeculativeSettings) and settings.controller == "default":
            path = bundled.controller_path("default", self.pair.draft.name)
            settings = replace(settings, controller=str(path))
        for reader in readers.values():
            reader.fed, reader.held = 0, ()
        device, cloud = (
            reading_side(side, self.pair.draft, partial(_given, reader), forward_s[side])
            for side, reader in readers.items()
        )
        async with linked(device, [cloud], link, question.seed) as arena:
            given = await arena.ask(question, settings, **trained)
        return given, {side: reader.fed for side, reader in readers.items()}

    def target_text(self, question: Question, prompt: Prompt) -> list[int]:
        rule = CoupledSpeculation(Noise(question.seed), question.sampler)
        reader = AnswerReader(self.pair.target, prompt.tokens, question.max_tokens)
        return alone(reader, prompt.stops, rule, question.max_tokens)


def _given(reader: PrefixCache, question: Question) -> PrefixCache:
    return reader
