"""The device's part of SPRINTER without I/O: draft, ask the verifier, decide or send (SPEC 4)."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Quantized, Step, encode_block
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.modes.blocks.counts import BlockCounts
from dragonrt.runtime.modes.blocks.drafting import Advance, Decided, EncodedBlock
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.modes.sprinter.counts import SprinterCounts
from dragonrt.runtime.modes.sprinter.plan import SprinterPlan
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.predictor import NextToken
from dragonrt.wire import messages as wire


class TokenVerifier(Protocol):
    """What a sprinter asks instead of the target, as language.Verifier answers it."""

    @property
    def threshold(self) -> float:
        """τ, if the plan has none."""

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        """How likely `token`, drafted from `q` [V] with that hidden state, is acceptable."""


class SprinterDrafting:
    """Implements Drafting (SPRINTER Algorithm 2).

    A token that the verifier lets pass is decided at once. One that it refuses goes to the cloud
    with the tokens that were decided since the cloud's last verdict, as a block of one token: the
    cloud reads them all and decides that one. At the end of the answer nothing is sent: whatever
    the verifier let pass stands.
    """

    def __init__(self, plan: SprinterPlan, vocabulary: int, verifier: TokenVerifier) -> None:
        self.line = Line(start_hash(plan.seed))
        self.decided = 0
        self._counts = SprinterCounts()
        self.counts: BlockCounts = self._counts
        self._plan = plan
        self._rule = plan.speculative_rule()
        self._codec = plan.block_codec(vocabulary)
        self._vocabulary = vocabulary
        self._verifier = verifier
        self._threshold = verifier.threshold if plan.threshold is None else plan.threshold
        self._known = 0  # tokens of the text that the cloud has
        self._run = 0  # tokens decided since the cloud's last verdict

    @property
    def finish(self) -> Finish | None:
        if self.decided and self.line.tokens[self.decided - 1] in self._plan.stop_tokens:
            return Finish.STOP
        return Finish.LENGTH if self.decided >= self._plan.max_tokens else None

    @property
    def ready(self) -> bool:
        return len(self.line) == self.decided

    def draft(self, said: NextToken, rate: float) -> Advance:
        quantized, token = self._drafted(said)
        probability = self._verifier.probability(said.hidden, said.p, token)
        if probability >= self._threshold and self._run + 1 < self._plan.run_length:
            return self._pass(token)
        return Advance(block=self._block(token, quantized))

    def take(self, verdict: wire.Verdict) -> Advance:
        if self.ready:
            raise BlockError("a verdict came, and no token waits for one")
        stands = verdict.token == self.line.tokens[self.decided]
        if verdict.accepted != stands:
            raise BlockError("a verdict gives another token than the one that it accepts")
        if verdict.token >= self._vocabulary:
            raise BlockError(f"token {verdict.token} is beyond the vocabulary")
        counts = self._counts
        counts.verified += 1
        counts.judged += 1
        counts.accepted += stands
        counts.resampled += not stands
        counts.unread = 0
        self.line.replace_from(self.decided, [verdict.token])
        self.decided = self._known = len(self.line)
        self._run = 0
        return Advance((Decided(verdict.token, stands),))

    def decide_alone(self, said: NextToken) -> Advance:
        _, token = self._drafted(said)
        advance = self._pass(token)
        self._known = self.decided  # whoever comes back begins with all of it
        return advance

    def rewind(self) -> None:
        self.line.cut(self.decided)
        self._known = self.decided  # as a session begins with all that is decided

    def _drafted(self, said: NextToken) -> tuple[Quantized, int]:
        """What the model says, as the cloud would see it, and the token drawn from that."""
        quantized = self._codec.quantize(self._rule.shape(said.p), Step(len(self.line)))
        return quantized, self._rule.draft(len(self.line), quantized.distribution)

    def _pass(self, token: int) -> Advance:
        """The token stands without the cloud's word."""
        self.line.append(token)
        self.decided += 1
        self._run += 1
        self._counts.unverified += 1
        self._counts.unread += 1
        return Advance((Decided(token, True),))

    def _block(self, token: int, quantized: Quantized) -> EncodedBlock:
        """`token` for the cloud to decide, behind what it does not know of the text."""
        self.line.append(token)
        return EncodedBlock(
            step=self.decided,
            prefix_hash=self.line.hashes[self.decided],
            count=1,
            payload=encode_block(self._codec, [token], [quantized]),
            bits=quantized.bits + quantized.token_bits,
            decided=tuple(self.line.tokens[self._known : self.decided]),
        )
