"""The text of a federated answer: blocks drafted, verified against the workers' mixture (SPEC 3).

Sans I/O: distributions in, tokens out. Nothing here knows of workers, messages or time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, codec, encode_block
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.modes.federated.plan import FederatedPlan
from dragonrt.runtime.outcome import Finish
from dragonrt.sampling.federated import mixture

Upload = Sequence[Distribution]
"""One worker's p̃ after each prefix of a block: one more than it has tokens."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a round decided: `tokens`, of which the first `accepted` were drafted."""

    drafted: int
    accepted: int
    tokens: tuple[int, ...]

    @property
    def resampled(self) -> bool:
        """Whether a drafted token was refused."""
        return self.accepted < min(self.drafted, len(self.tokens))


class Coordination:
    """The coordinator's text: `line` is the decided text, then the block drafted so far."""

    def __init__(self, plan: FederatedPlan, vocabulary: int) -> None:
        self._plan = plan
        self._rule = plan.speculative_rule()
        self._blocks = codec("ids", vocabulary)
        self._q: list[Distribution] = []
        self.line = Line(start_hash(plan.seed))
        self.decided = 0
        self.finish: Finish | None = None

    @property
    def drafted(self) -> tuple[int, ...]:
        """The tokens of the block."""
        return tuple(self.line.tokens[self.decided :])

    @property
    def complete(self) -> bool:
        """Whether the block is to be verified as it is: the token that follows it fits, too."""
        room = self._plan.max_tokens - self.decided - 1
        drafted = self.drafted
        stopped = bool(drafted) and drafted[-1] in self._plan.stop_tokens
        return stopped or len(drafted) >= min(self._plan.block_tokens, room)

    def draft(self, p: NDArray[np.floating[Any]]) -> None:
        """Extend the block by a token, given what the draft model says behind the line: [V]."""
        q = self._blocks.quantize(self._rule.shape(p)).distribution
        self._q.append(q)
        self.line.append(self._rule.draft(len(self.line), q))

    def payload(self) -> bytes:
        """The block in the bits of the codec `ids`."""
        return encode_block(self._blocks, self.drafted, ())

    def verify(self, uploads: Sequence[Upload], weights: Sequence[float]) -> Verified:
        """Decide the block's fate by the mixture of `uploads`, of the weights that sum to 1."""
        drafted = self.drafted
        q = self._q if self._rule.sends_distributions else None
        p = [self._rule.shape(mixture(each, weights)) for each in zip(*uploads, strict=True)]
        verdict = self._rule.verify(self.decided, drafted, q, p)
        tokens = self._until_stop((*drafted[: verdict.accepted], verdict.token))
        self.line.replace_from(self.decided, tokens)
        self.decided = len(self.line)
        self._q.clear()
        if tokens[-1] in self._plan.stop_tokens:
            self.finish = Finish.STOP
        elif self.decided >= self._plan.max_tokens:
            self.finish = Finish.LENGTH
        return Verified(len(drafted), min(verdict.accepted, len(tokens)), tokens)

    def _until_stop(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        for position, token in enumerate(tokens):
            if token in self._plan.stop_tokens:
                return tokens[: position + 1]
        return tokens
