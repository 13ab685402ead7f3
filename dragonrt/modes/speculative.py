"""Speculative decoding over a network (SPEC 2; QSV, SQS).

The device drafts blocks from what the cloud will see of its distributions, the cloud verifies a
block in one forward. The text is exactly the cloud model's under the rules coupled and rejection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.policies import Controller
from dragonrt.distributions import (
    ConformalThreshold,
    Distribution,
    Step,
    block_steps,
    codec,
    decode_block,
    encode_block,
    entropy,
)
from dragonrt.modes.block_drafting import Advance, Decided, EncodedBlock
from dragonrt.modes.drafted_block import Carried, DraftedBlock, DraftedToken, first_threshold
from dragonrt.modes.judging import ReadBlock
from dragonrt.modes.mode import Finish, Head, ModeError, Prediction
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import SpeculativeSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.stopping import DraftSignals, StoppingRule
from dragonrt.sampling.verification import SpeculativeRule, VerifyResult, speculative_rule
from dragonrt.wire import messages as wire
from dragonrt.wire.limits import MAX_BLOCK, MAX_PAYLOAD


class TokenVerifier(Protocol):
    """A trained prediction of the cloud's verdict, as `control.verifier.Verifier` makes it."""

    @property
    def threshold(self) -> float:
        """τ of a sprinter whose settings have none."""

    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        """How likely `token` is to stand; `hidden` and `q` [V] are what the draft model said."""


@dataclass(frozen=True, slots=True)
class _Prediction:
    """What a head makes of a prediction behind a block: its next token, or a guess behind it.

    `block` is the one begun, as a controller will have it, with its first token. `payload` is the
    whole block's where it ends here, with `token` or, where that is None because
    it would have been too much, without.
    """

    token: DraftedToken | None = None
    guess: int | None = None
    payload: bytes | None = None
    block: DraftedBlock | None = None


class SpeculativeDrafting:
    """Implements Drafting and TargetFollowing.

    Behind the blocks that await their verdicts the line goes on with a guess of the token that the
    cloud will add, and with further blocks. A verdict that says otherwise cuts the line back to
    what is decided, and what was carried along is taken back to that place. A block ends where
    `controller` or the settings say, or earlier where `stopping` does, which `acceptance` tells how
    likely each token is to stand. `threshold` is where C-SQS goes on from earlier answers.
    """

    def __init__(
        self,
        question: Question,
        settings: SpeculativeSettings,
        vocabulary: int,
        controller: Controller | None = None,
        stopping: StoppingRule | None = None,
        acceptance: TokenVerifier | None = None,
        threshold: ConformalThreshold | None = None,
    ) -> None:
        self.line = TokenPrefix(start_hash(question.seed), question.accepted)
        self.decided = len(question.accepted)
        self._question = question
        self._settings = settings
        self._cloud_decodes = settings.decodes
        self._controller = controller
        self._acceptance = acceptance
        self._rule = speculative_rule(settings.rule, Noise(question.seed), question.sampler)
        by_id = not self._rule.drafts_from_quantized
        self._codec = codec(settings.codec, vocabulary, tokens_by_id=by_id)
        longest = 8 * min(self._codec.longest, MAX_PAYLOAD) - 16
        budget = settings.budget
        self._longest_bits = longest if budget is None else min(longest, budget)
        self._block: DraftedBlock | None = None  # under way
        self._sent: deque[DraftedBlock] = deque()
        self._carried = Carried(threshold or first_threshold(settings), stopping)

    @property
    def finish(self) -> Finish | None:
        return self._finish_at(self.decided)

    @property
    def ready(self) -> bool:
        if len(self._sent) >= self._settings.outstanding:
            return False
        return self._block is not None or self._finish_at(len(self.line)) is None

    def head(self, rate: float) -> Head:
        if self._block is None and self._guess_is_due:
            end = self._sent[-1].end
            return lambda said: _Prediction(guess=self._guessed(end, self._rule.shape(said[0].p)))
        if self._block is None:
            self._block = self._begin()
        block = self._block
        return lambda said: self._predicted(block, rate, said[0])

    def take_draft(self, result: _Prediction) -> Advance:
        block = self._block
        if block is None or (result.token is None and result.payload is None):
            self._guess(result.guess)
            return Advance()
        if result.block is not None:
            block = self._block = replace(result.block, tokens=[])  # a result stays as it is
        if result.token is not None:
            block.append(result.token)
            self.line.append(result.token.token)
        if result.payload is None:
            return Advance()
        encoded = self._end(block, result.payload)
        if result.token is None and self.ready:
            self._guess(result.guess)
        return Advance(block=encoded)

    def take_verdict(self, accepted: int, token: int) -> Advance:
        if not self._sent or accepted > len(self._sent[0].tokens):
            raise ModeError(f"a verdict accepts {accepted} tokens that were not drafted")
        block = self._sent.popleft()
        decided = [Decided(each.token, True) for each in block.tokens[:accepted]]
        decided.append(Decided(token, None if accepted == len(block.tokens) else False))
        step = block.step + accepted
        as_guessed = self.line.tokens[step : step + 1] == [token]
        cut = accepted < len(block.tokens) or not as_guessed
        if cut and step < self.decided:
            raise ModeError(f"a verdict gives another token at step {step} than was decided")
        if cut:
            self._drop_drafts(step)
            self.line.append(token)
            self._carried = block.start.after(block, accepted, token)
        return Advance(
            self._decide(decided[self.decided - block.step :]),
            cut=cut,
            judged=len(block.tokens),
            thresholds=block.thresholds(accepted),
        )

    def take_target(self, step: int, prefix_hash: int, token: int) -> Advance:
        line = self.line
        if not self._cloud_decodes:
            raise ModeError("a Target has no place where verdicts decide alone")
        if step != self.decided or prefix_hash != line.hashes[step]:
            raise ModeError(
                f"a target token of step {step} came that follows another text than is decided"
            )
        drafted = [each for each in (*self._sent, self._block) if each is not None]
        block = next((each for each in drafted if step <= each.end), None)
        within = block is not None and block.step <= step < block.end
        if line.tokens[step : step + 1] == [token]:
            return Advance(self._decide([Decided(token, True if within else None)]))
        verdicts = tuple(self._contradicted(step, token))
        if block is not None:
            start = block.start
            self._carried = start.after(block, step - block.step, token) if block.tokens else start
        self._drop_drafts(step)
        line.append(token)
        stands = False if within else None
        return Advance(self._decide([Decided(token, stands)]), cut=True, verdicts=verdicts)

    def _contradicted(self, step: int, token: int) -> Iterator[tuple[int, int, int]]:
        """What a token at `step`, other than was drafted there, says of the blocks sent."""
        for block in self._sent:
            count, tokens = len(block.tokens), self.line.tokens
            if step <= block.end:
                yield count, step - block.step, token
                return
            yield count, count, tokens[block.end]

    def head_alone(self) -> Head:
        step = self.decided

        def head(said: Sequence[Prediction]) -> int:
            q = Distribution.from_dense(self._rule.shape(said[0].p))
            return self._rule.draft(step, q)

        return head

    def decide_alone(self, result: int) -> Advance:
        self.line.append(result)
        return Advance(self._decide([Decided(result, None)]))

    def rewind(self) -> None:
        oldest = self._sent[0] if self._sent else self._block
        if oldest is not None:
            self._carried = oldest.start
        self._drop_drafts(self.decided)

    # Blocks.

    def _begin(self) -> DraftedBlock:
        step = len(self.line)
        longest = self._longest(step, self._settings.length)
        return DraftedBlock(step, self.line.hash, longest, None, self._carried)

    def _longest(self, step: int, length: int) -> int:
        """The cloud adds a token to every block: nobody need draft the answer's last one."""
        return max(1, min(length, self._question.max_tokens - step - 1))

    def _controlled(
        self, block: DraftedBlock, rate: float, said: Prediction, controller: Controller
    ) -> DraftedBlock:
        action = controller.choose(block.start.state(float(said.p.max()), rate))
        longest = self._longest(block.step, min(action.length, MAX_BLOCK))
        return replace(block, longest=longest, resolution=action.resolution)

    def _predicted(self, block: DraftedBlock, rate: float, said: Prediction) -> _Prediction:
        """Beside the loop: the next token of a block, or its end."""
        chosen = None
        if self._controller is not None and not block.tokens:
            chosen = block = self._controlled(block, rate, said, self._controller)
        q = self._rule.shape(said.p)
        token = self._drafted(block, q, said)
        if block.tokens and block.bits + token.bits > self._longest_bits:
            guess = self._guessed(block.end, q)
            return _Prediction(guess=guess, payload=self._payload(block.tokens))
        tokens = [*block.tokens, token]
        ends = self._is_complete(block, tokens)
        return _Prediction(token, payload=self._payload(tokens) if ends else None, block=chosen)

    def _drafted(
        self, block: DraftedBlock, q: NDArray[np.float64], said: Prediction
    ) -> DraftedToken:
        """The next token of a block, drafted from what the cloud will see (SPEC 0)."""
        threshold = block.threshold
        beta = threshold.beta if threshold is not None else None
        quantized = self._codec.quantize(q, Step(block.end, block.resolution, beta))
        source = quantized.distribution
        if not self._rule.drafts_from_quantized:
            source = Distribution.from_dense(q)
        token = self._rule.draft(block.end, source)
        known = DraftSignals(0.0)
        if block.start.stopping is not None:
            known = DraftSignals(entropy(Distribution.from_dense(_normalised(said.p))))
        if self._acceptance is not None:
            likely = self._acceptance.probability(said.hidden, said.p, token)
            known = replace(known, acceptance=likely)
        return DraftedToken(token, q, quantized, threshold, known)

    def _is_complete(self, block: DraftedBlock, tokens: Sequence[DraftedToken]) -> bool:
        if len(tokens) >= block.longest or tokens[-1].token in self._question.stop_tokens:
            return True
        stopping = block.start.stopping
        return stopping is not None and stopping.stop([each.drafted for each in tokens])

    def _payload(self, tokens: Sequence[DraftedToken]) -> bytes:
        return encode_block(
            self._codec, [each.token for each in tokens], [each.quantized for each in tokens]
        )

    def _end(self, block: DraftedBlock, payload: bytes) -> EncodedBlock:
        """The block under way is complete."""
        self._block = None
        self._sent.append(block)
        chosen = block.resolution if self._codec.has_resolution else None
        resolutions = () if chosen is None else (chosen,)
        return EncodedBlock(
            block.step,
            block.prefix_hash,
            len(block.tokens),
            payload,
            block.bits,
            resolutions,
            distributions=self._codec.sends_distributions,
        )

    # The text.

    @property
    def _guess_is_due(self) -> bool:
        return bool(self._sent) and self._sent[-1].end == len(self.line)

    def _guessed(self, step: int, q: NDArray[np.float64]) -> int:
        return self._rule.guess(step, Distribution.from_dense(q))

    def _guess(self, token: int | None) -> None:
        """Go on as if the newest block stood, with the likeliest token behind it."""
        if token is None:
            raise ValueError("nothing was guessed")
        block = self._sent[-1]
        self.line.append(token)
        self._carried = block.start.after(block, len(block.tokens), token)

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
        if length and self.line.tokens[length - 1] in self._question.stop_tokens:
            return Finish.STOP
        return Finish.LENGTH if length >= self._question.max_tokens else None


class SpeculativeJudging:
    """Implements Judging: every token of a block is judged, and one more is given."""

    def __init__(self, question: Question, settings: SpeculativeSettings, vocabulary: int) -> None:
        self._rule = speculative_rule(settings.rule, Noise(question.seed), question.sampler)
        by_id = not self._rule.drafts_from_quantized
        self._codec = codec(settings.codec, vocabulary, tokens_by_id=by_id)

    def read(self, block: wire.Block) -> ReadBlock:
        if len(block.payload) > self._codec.longest:
            raise ModeError(
                f"a block of {len(block.payload)} bytes takes too long to read: send at most "
                f"{self._codec.longest}"
            )
        steps = block_steps(block.step, block.count, block.resolutions)
        tokens, q = decode_block(self._codec, block.payload, steps)
        return ReadBlock(block.step, tokens, q)

    def answer(self, block: ReadBlock, said: Sequence[Prediction]) -> VerifyResult:
        return self._rule.verify(block.step, block.tokens, block.q, _Shaped(self._rule, said))

    def decoding(self, step: int) -> Head:
        """What decides the token of `step` without a block: what follows an empty one."""
        return lambda said: self._rule.verify(step, (), (), _Shaped(self._rule, said)).token


class _Shaped(Sequence[NDArray[np.float64]]):
    """What to verify with, shaped where it is looked up: nothing behind a refused token is."""

    def __init__(self, rule: SpeculativeRule, said: Sequence[Prediction]) -> None:
        self._rule = rule
        self._said = said

    def __len__(self) -> int:
        return len(self._said)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.float64]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NDArray[np.float64]]: ...
    def __getitem__(
        self, index: int | slice
    ) -> NDArray[np.float64] | Sequence[NDArray[np.float64]]:
        if isinstance(index, slice):
            return _Shaped(self._rule, self._said[index])
        return self._rule.shape(self._said[index].p)


def _normalised(p: NDArray[np.float32]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = p.astype(np.float64)
    wide /= wide.sum()
    return wide
