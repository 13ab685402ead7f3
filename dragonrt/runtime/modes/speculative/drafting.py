"""The device's part of speculative decoding without I/O: draft blocks, take verdicts (SPEC 2)."""

from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, Step, encode_block, entropy
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.modes.blocks.counts import BlockCounts
from dragonrt.runtime.modes.blocks.drafting import Advance, Decided, EncodedBlock
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.modes.blocks.sizes import sends_lattice
from dragonrt.runtime.modes.speculative.block import Carried, DraftedBlock, DraftedToken
from dragonrt.runtime.modes.speculative.plan import SpeculativePlan
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.predictor import NextToken
from dragonrt.sampling.speculative import Verdict
from dragonrt.sampling.stopping import Drafted
from dragonrt.wire import messages as wire
from dragonrt.wire.limits import MAX_BLOCK


class SpeculativeDrafting:
    """Implements Drafting.

    Behind the blocks that await their verdicts the line goes on with a guess of the token that the
    cloud will add, and with further blocks. A verdict that says otherwise cuts the line back to
    what is decided, and what was carried along is taken back to that place.
    """

    def __init__(self, plan: SpeculativePlan, vocabulary: int) -> None:
        self.line = Line(start_hash(plan.seed))
        self.decided = 0
        self.counts = BlockCounts()
        self._plan = plan
        self._rule = plan.speculative_rule()
        self._codec = plan.block_codec(vocabulary)
        self._block: DraftedBlock | None = None  # under way
        self._sent: deque[DraftedBlock] = deque()
        self._carried = Carried(plan.first_threshold(), plan.shape.stopping)

    @property
    def finish(self) -> Finish | None:
        return self._finish_at(self.decided)

    @property
    def ready(self) -> bool:
        if len(self._sent) >= self._plan.shape.outstanding:
            return False
        return self._block is not None or self._finish_at(len(self.line)) is None

    def draft(self, said: NextToken, rate: float) -> Advance:
        q = self._rule.shape(said.p)
        if self._block is None:
            if self._guess_is_due:
                self._guess(q)
                return Advance()
            self._block = self._begin(rate)
        block = self._block
        token = self._drafted(block, q, said)
        bits = block.bits + token.bits
        if block.tokens and bits > self._plan.longest_block_bits:
            encoded = self._end(block)
            if self.ready:
                self._guess(q)
            return Advance(block=encoded)
        block.append(token)
        self.line.append(token.token)
        return Advance(block=self._end(block) if self._is_complete(block) else None)

    def take(self, verdict: wire.Verdict) -> Advance:
        if not self._sent or verdict.accepted > len(self._sent[0].tokens):
            raise BlockError(f"a verdict accepts {verdict.accepted} tokens that were not drafted")
        block = self._sent.popleft()
        accepted = verdict.accepted
        self.counts.verified += 1
        self.counts.judged += len(block.tokens)
        self.counts.accepted += accepted
        self.counts.resampled += accepted < len(block.tokens)
        decided = [Decided(each.token, True) for each in block.tokens[:accepted]]
        decided.append(Decided(verdict.token, None if accepted == len(block.tokens) else False))
        step = block.step + accepted
        as_guessed = self.line.tokens[step : step + 1] == [verdict.token]
        cut = accepted < len(block.tokens) or not as_guessed
        if cut:
            self._drop_drafts(step)
            self.line.append(verdict.token)
            self._carried = block.start.after(block, Verdict(accepted, verdict.token))
        return Advance(self._decide(decided), cut=cut, thresholds=block.thresholds(accepted))

    def decide_alone(self, said: NextToken) -> Advance:
        q = Distribution.from_dense(self._rule.shape(said.p))
        token = self._rule.draft(self.decided, q)
        self.line.append(token)
        return Advance(self._decide([Decided(token, None)]))

    def rewind(self) -> None:
        oldest = self._sent[0] if self._sent else self._block
        if oldest is not None:
            self._carried = oldest.start
        self._drop_drafts(self.decided)

    # Blocks.

    def _begin(self, rate: float) -> DraftedBlock:
        shape, step = self._plan.shape, len(self.line)
        length, resolution = shape.length, None
        if shape.controller is not None:
            action = shape.controller.choose(self._carried.state(rate))
            length, resolution = min(action.length, MAX_BLOCK), action.resolution
        # The cloud adds a token to every block: nobody need draft the answer's last one.
        longest = max(1, min(length, self._plan.max_tokens - step - 1))
        return DraftedBlock(step, self.line.hash, longest, resolution, self._carried)

    def _drafted(
        self, block: DraftedBlock, q: NDArray[np.float64], said: NextToken
    ) -> DraftedToken:
        """The next token of a block, drafted from what the cloud will see (SPEC 0)."""
        threshold = block.threshold
        beta = threshold.beta if threshold is not None else None
        quantized = self._codec.quantize(q, Step(block.end, block.resolution, beta))
        source = quantized.distribution
        if not self._rule.drafts_from_quantized:
            source = Distribution.from_dense(q)
        token = self._rule.draft(block.end, source)
        known = Drafted(0.0)
        if block.start.stopping is not None:
            known = Drafted(entropy(Distribution.from_dense(_normalised(said.p))))
        head = self._plan.shape.acceptance
        if head is not None:
            known = replace(known, acceptance=head.probability(said.hidden, said.p, token))
        return DraftedToken(token, q, quantized, threshold, known)

    def _is_complete(self, block: DraftedBlock) -> bool:
        if len(block.tokens) >= block.longest or self.line.tokens[-1] in self._plan.stop_tokens:
            return True
        stopping = block.start.stopping
        return stopping is not None and stopping.stop([each.drafted for each in block.tokens])

    def _end(self, block: DraftedBlock) -> EncodedBlock:
        """The block under way is complete."""
        self._block = None
        self._sent.append(block)
        tokens = [each.token for each in block.tokens]
        payload = encode_block(self._codec, tokens, [each.quantized for each in block.tokens])
        resolutions = (
            (block.resolution,) if sends_lattice(self._plan.codec) and block.resolution else ()
        )
        return EncodedBlock(
            block.step, block.prefix_hash, len(tokens), payload, block.bits, resolutions
        )

    # The text.

    @property
    def _guess_is_due(self) -> bool:
        return bool(self._sent) and self._sent[-1].end == len(self.line)

    def _guess(self, q: NDArray[np.float64]) -> None:
        """Go on as if the newest block stood, with the likeliest token behind it."""
        block = self._sent[-1]
        token = self._rule.guess(block.end, Distribution.from_dense(q))
        self.line.append(token)
        self._carried = block.start.after(block, Verdict(len(block.tokens), token))

    def _drop_drafts(self, step: int) -> None:
        """The text goes on differently from `step` on: forget all that was drafted behind."""
        self.line.cut(step)
        self._sent.clear()
        self._block = None

    def _decide(self, tokens: list[Decided]) -> tuple[Decided, ...]:
        """The tokens, which are on the line, are decided, as far as the answer goes."""
        taken = []
        for each in tokens:
            if self.finish is not None:
                break
            self.decided += 1
            taken.append(each)
        return tuple(taken)

    def _finish_at(self, length: int) -> Finish | None:
        """Why an answer of that many tokens of the line is complete, or None."""
        if length and self.line.tokens[length - 1] in self._plan.stop_tokens:
            return Finish.STOP
        return Finish.LENGTH if length >= self._plan.max_tokens else None


def _normalised(p: NDArray[np.float32]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = p.astype(np.float64)
    wide /= wide.sum()
    return wide
