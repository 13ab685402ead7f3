"""Answers to one prompt under many plans, paces and links, in virtual time.

Their texts have much in common, so what a model says after a prefix is computed once.
"""

from collections.abc import Callable, Sequence
from typing import Any

from dragonrt.experiments.paced import PacedWorker
from dragonrt.experiments.paced_blocks import BlockPace, paced_answer, text_reader
from dragonrt.experiments.speculation import Pair
from dragonrt.language.preemption import Preemption
from dragonrt.language.reader import Mixture, Reader
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.model_predictor import ModelPredictor
from dragonrt.runtime.modes.blocks import Answer, BlockAsking
from dragonrt.runtime.modes.speculative import SpeculativePlan, beginning
from dragonrt.runtime.preparing import Preparer
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.pair import SimulatedSide


class RecallingReader(Reader):
    """A Reader that remembers all it said."""

    def __init__(self, *parts: Any, in_blocks: bool) -> None:
        super().__init__(*parts, in_blocks=in_blocks)
        self._said: dict[int, Mixture] = {}

    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, preemption: Preemption
    ) -> list[Mixture]:
        """Like Reader's; the KV cache is only touched for what was never said."""
        said = self._said
        wanted = hashes[first : len(tokens) + 1]
        if not all(prefix in said for prefix in wanted):
            readings = super().read(tokens, hashes, first, preemption)
            said.update(zip(wanted, readings, strict=True))
        return [said[prefix] for prefix in wanted]


class RecalledAnswers:
    """The answers of `pair` to one prompt with one seed, which every plan must have."""

    def __init__(self, pair: Pair, prompt: Sequence[int], seed: int) -> None:
        self._seed = seed
        self._sides = {
            "device": (pair.draft, text_reader(pair.draft, prompt, seed, RecallingReader)),
            "cloud": (pair.target, text_reader(pair.target, prompt, seed, RecallingReader)),
        }

    def answer(self, plan: SpeculativePlan, pace: BlockPace) -> Answer:
        """One answer by speculative decoding; a controller sees the link's true rate."""
        if plan.seed != self._seed:
            raise ValueError(f"the plan has the seed {plan.seed}, not {self._seed}")

        def ask(side: Preparer, connector: Connector, rate: Callable[[], float]) -> BlockAsking:
            begin = beginning(side, connector, rate=rate)
            return begin(plan, lambda decision: None, lambda text: None)

        device, cloud = self._side("device", pace.draft_s), self._side("cloud", pace.target_s)
        return paced_answer(device, cloud, pace.link, pace.link_seed, ask)

    def _side(self, side: Side, forward_s: float) -> SimulatedSide:
        model, reader = self._sides[side]
        script = Script(0, vocabulary=model.vocabulary)

        def predictor(*_: object) -> ModelPredictor:
            return ModelPredictor(PacedWorker(forward_s), reader)

        return SimulatedSide(side, lambda _: script, make_predictor=predictor)


def seconds(answer: Answer) -> float:
    """From the question to the last token."""
    return answer.decisions[-1].time_s - answer.asked_s
