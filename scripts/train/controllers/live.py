"""Training live: a pair of models drafts and verifies over a simulated uplink."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.policies import Action, ControlState
from dragonrt.distributions import Distribution, Step
from dragonrt.sampling.verification import Rejection, token_acceptance
from scripts.train.controllers.course import Course, IterationCosts, Transition, estimated_accepted
from scripts.train.controllers.model_pair import AnswerReader, ModelPair, Tasks, resolved_codec


class LiveEnvironment:
    """Episodes of real models; their seed chooses the task, its noise and the uplink's course."""

    def __init__(
        self, pair: ModelPair, tasks: Tasks, codec_name: str, costs: IterationCosts
    ) -> None:
        self._pair = pair
        self._tasks = tasks
        self._codec = resolved_codec(codec_name, costs.vocabulary)
        self._costs = costs

    def reset(self, seed: int) -> ControlState:
        """Begin the task and the course of the uplink that have this number."""
        prompt, sampler, noise = self._tasks.choose(seed)
        self._rule, self._stops = Rejection(noise, sampler), set(prompt.stops)
        self._draft, self._target = (
            AnswerReader(model, prompt.tokens, self._tasks.max_tokens)
            for model in (self._pair.draft, self._pair.target)
        )
        self._answer: list[int] = []
        self._course = Course(self._costs, seed)
        return self._state()

    def _state(self) -> ControlState:
        said = self._draft.after(self._answer, len(self._answer))[0]
        return self._course.state(float(said.max()))

    @property
    def answer(self) -> tuple[int, ...]:
        """The tokens of the answer so far."""
        return tuple(self._answer)

    def step(self, action: Action) -> Transition:
        """One block, drafted and verified; it ends early behind a stop token or the longest text.

        The reward is that of the tokens which were drafted.
        """
        first = len(self._answer)
        length = min(action.length, self._tasks.max_tokens - first)
        tokens, q, sent, bits = self._drafted(length, action.resolution)
        p = [self._rule.shape(one) for one in self._target.after(self._answer + tokens, first)]
        verdict = self._rule.verify(first, tokens, sent, p)
        stands = [
            token_acceptance(float(p_t[token]), q_t.probability(token))
            for token, q_t, p_t in zip(tokens, sent, p, strict=False)
        ]
        new = tokens[: verdict.accepted]
        if not self._is_over(new):
            new.append(verdict.token)
        seconds = self._course.iteration(
            len(tokens),
            bits,
            verdict.accepted,
            [float(q_t[token]) for token, q_t in zip(new, q, strict=False)],
        )
        overlap = [
            float(np.minimum(p_t[q_t.ids], q_t.probabilities).sum())
            for q_t, p_t in zip(sent, p, strict=False)
        ]
        reward = (1 + estimated_accepted(stands, overlap)) / seconds
        done = self._is_over(new)
        self._answer += new
        state = self._course.state(1.0) if done else self._state()
        return Transition(state, reward, len(new), seconds, done)

    def _is_over(self, new: Sequence[int]) -> bool:
        """Whether the answer ends with these new tokens."""
        longest = len(self._answer) + len(new) == self._tasks.max_tokens
        return longest or bool(self._stops & set(new[-1:]))

    def _drafted(
        self, length: int, resolution: int
    ) -> tuple[list[int], list[NDArray[np.float64]], list[Distribution], int]:
        """The tokens of a block, the draft's distributions, as they are sent, and their bits."""
        tokens: list[int] = []
        exact, sent = [], []
        bits = 0
        while len(tokens) < length and not self._stops & set(tokens[-1:]):
            text = self._answer + tokens
            exact.append(self._rule.shape(self._draft.after(text, len(text))[0]))
            step = Step(len(self._answer) + len(tokens), resolution)
            quantized = self._codec.quantize(exact[-1], step)
            sent.append(quantized.distribution)
            tokens.append(self._rule.draft(step.index, sent[-1]))
            bits += quantized.bits + quantized.token_bits
        return tokens, exact, sent, bits
