"""Speculative decoding over a network (SPEC 2; QSV, SQS).

The device drafts blocks from what the cloud will see of its distributions, the cloud verifies a
block in one forward. The text is exactly the cloud model's under the rules coupled and rejection.
"""

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
from dragonrt.modes.blocks.drafter import Drafting
from dragonrt.modes.blocks.values import (
    UNSURE,
    Advance,
    Block,
    Carried,
    Decided,
    DraftedToken,
    ReadBlock,
)
from dragonrt.modes.blocks.verifier import Judging
from dragonrt.modes.mode import Head, ModeError, Prediction
from dragonrt.modes.question import Question
from dragonrt.modes.settings import SpeculativeSettings
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.stopping import DraftSignals
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
    """What a head makes of a prediction: the next token of `block`, or a `guess` behind it.

    `block` is without tokens where a controller has just planned it. `payload` is the whole block's
    if it ends here, with `token` or, if that is None because it does not fit, without it.
    """

    token: DraftedToken | None = None
    guess: int | None = None
    payload: bytes | None = None
    block: Block | None = None


class SpeculativeDrafting(Drafting):
    """Blocks of drafted tokens, several under way.

    Behind the blocks that await their verdicts the line goes on with a guess of the token that the
    cloud will add, and with further blocks. A verdict that says otherwise cuts the line back to
    what is decided, and what is carried along goes back to that place. A block ends where
    `controller` or the settings say, or earlier by the stopping rule, to which `verifier` tells how
    likely each token is to stand. `threshold` is C-SQS's after earlier answers.
    """

    def __init__(
        self,
        question: Question,
        settings: SpeculativeSettings,
        vocabulary: int,
        controller: Controller | None = None,
        verifier: TokenVerifier | None = None,
        threshold: ConformalThreshold | None = None,
    ) -> None:
        super().__init__(question)
        self._settings = settings
        self._controller = controller
        self._verifier = verifier
        self._rule = speculative_rule(settings.rule, Noise(question.seed), question.sampler)
        by_id = not self._rule.drafts_from_quantized
        self._codec = codec(settings.codec, vocabulary, tokens_by_id=by_id)
        longest = 8 * min(self._codec.longest, MAX_PAYLOAD) - 16
        self._longest_bits = min(longest, settings.budget or longest)
        self._block: Block | None = None  # being drafted
        self._carried = Carried(threshold or settings.first_threshold, settings.stopping_rule)

    @property
    def ready(self) -> bool:
        if len(self.sent) >= self._settings.outstanding:
            return False
        return self._block is not None or self.finish_at(len(self.line)) is None

    def head(self, rate: float) -> Head:
        block, step = self._block, len(self.line)
        if block is None and self.sent and self.sent[-1].end == step:
            return lambda said: _Prediction(guess=self._guessed(step, self._rule.shape(said[0].p)))
        if block is None:
            longest = self._longest(step, self._settings.length)
            block = self._block = Block(step, self.line.hash, longest, start=self._carried)
        return lambda said: self._predicted(block, rate, said[0])

    def take_draft(self, result: _Prediction) -> Advance:
        block = self._block
        if block is None or (result.token is None and result.payload is None):
            self._guess(result.guess)
            return Advance()
        if result.block is not None:
            block = self._block = replace(result.block, tokens=[])  # a result stays as it is
        if result.token is not None:
            block.tokens.append(result.token)
            self.line.append(result.token.token)
        if result.payload is None:
            return Advance()
        self._block, block.payload = None, result.payload
        block.distributions = self._codec.sends_distributions
        if block.resolution is not None and self._codec.has_resolution:
            block.resolutions = (block.resolution,)
        self.sent.append(block)
        if result.token is None and self.ready:
            self._guess(result.guess)
        return Advance(block=block)

    def take_verdict(self, accepted: int, token: int) -> Advance:
        if not self.sent or accepted > self.sent[0].count:
            raise ModeError(f"a verdict accepts {accepted} tokens that were not drafted")
        block = self.sent.popleft()
        whole, step = accepted == block.count, block.step + accepted
        decided = [Decided(each.token, True) for each in block.tokens[:accepted]]
        decided.append(Decided(token, None if whole else False))
        cut = not whole or self.line.tokens[step : step + 1] != [token]
        if cut and step < self.decided:
            raise ModeError(f"a verdict gives another token at step {step} than was decided")
        if cut:
            self._drop_drafts(step)
            self.line.append(token)
            self._carried = block.start.after(block, accepted, token)
        return Advance(
            self.decide(decided[self.decided - block.step :]),
            cut=cut,
            judged=block.count,
            thresholds=block.thresholds(accepted),
        )

    def take_target(self, step: int, prefix_hash: int, token: int) -> Advance:
        line = self.line
        if not self._settings.decodes:
            return super().take_target(step, prefix_hash, token)
        if step != self.decided or prefix_hash != line.hashes[step]:
            raise ModeError(
                f"a target token of step {step} came that follows another text than is decided"
            )
        drafted = [each for each in (*self.sent, self._block) if each is not None]
        block = next((each for each in drafted if step <= each.end), None)
        within = block is not None and block.step <= step < block.end
        if line.tokens[step : step + 1] == [token]:
            return Advance(self.decide([Decided(token, True if within else None)]))
        verdicts = tuple(self._contradicted(step, token))
        if block is not None:
            start = block.start
            self._carried = start.after(block, step - block.step, token) if block.tokens else start
        self._drop_drafts(step)
        line.append(token)
        decided = self.decide([Decided(token, False if within else None)])
        return Advance(decided, cut=True, verdicts=verdicts)

    def _contradicted(self, step: int, token: int) -> Iterator[tuple[int, int, int]]:
        """What a token at `step`, other than was drafted there, says of the blocks sent."""
        for block in self.sent:
            if step <= block.end:
                yield block.count, step - block.step, token
                return
            yield block.count, block.count, self.line.tokens[block.end]

    def head_alone(self) -> Head:
        step = self.decided

        def head(said: Sequence[Prediction]) -> int:
            return self._rule.draft(step, Distribution.from_dense(self._rule.shape(said[0].p)))

        return head

    def rewind(self) -> None:
        oldest = self.sent[0] if self.sent else self._block
        if oldest is not None:
            self._carried = oldest.start
        self._drop_drafts(self.decided)

    def _drop_drafts(self, step: int) -> None:
        """The text goes on differently from `step` on: forget all that was drafted behind."""
        self.line.cut(step)
        self.sent.clear()
        self._block = None

    # Planning a block: where it ends, and with which resolution.

    def _longest(self, step: int, length: int) -> int:
        """The cloud adds a token to every block: nobody need draft the answer's last one."""
        return max(1, min(length, self.question.max_tokens - step - 1))

    def _planned(
        self, block: Block, rate: float, said: Prediction, controller: Controller
    ) -> Block:
        action = controller.choose(block.start.state(float(said.p.max()), rate))
        longest = self._longest(block.step, min(action.length, MAX_BLOCK))
        return replace(block, longest=longest, resolution=action.resolution)

    def _predicted(self, block: Block, rate: float, said: Prediction) -> _Prediction:
        """Beside the loop: the next token of a block, or its end."""
        planned = None
        if self._controller is not None and not block.tokens:
            planned = block = self._planned(block, rate, said, self._controller)
        q = self._rule.shape(said.p)
        token = self._drafted(block, q, said)
        if block.tokens and block.bits + token.bits > self._longest_bits:
            guess = self._guessed(block.end, q)
            return _Prediction(guess=guess, payload=self._payload(block.tokens))
        tokens = [*block.tokens, token]
        payload = self._payload(tokens) if self._is_complete(block, tokens) else None
        return _Prediction(token, payload=payload, block=planned)

    def _is_complete(self, block: Block, tokens: Sequence[DraftedToken]) -> bool:
        if len(tokens) >= block.longest or tokens[-1].token in self.question.stop_tokens:
            return True
        stopping = block.start.stopping
        return stopping is not None and stopping.stop([each.signals for each in tokens])

    def _drafted(self, block: Block, q: NDArray[np.float64], said: Prediction) -> DraftedToken:
        """The next token of a block, drafted from what the cloud will see (SPEC 0)."""
        threshold, step = block.threshold, block.end
        beta = threshold.beta if threshold is not None else None
        quantized = self._codec.quantize(q, Step(step, block.resolution, beta))
        source = quantized.distribution
        if not self._rule.drafts_from_quantized:
            source = Distribution.from_dense(q)
        token = self._rule.draft(step, source)
        signals = UNSURE
        if block.start.stopping is not None:
            p = said.p.astype(np.float64)
            signals = DraftSignals(entropy(Distribution.from_dense(p / p.sum())))
        if self._verifier is not None:
            likely = self._verifier.probability(said.hidden, said.p, token)
            signals = replace(signals, acceptance=likely)
        kept = None if self._controller is None else q
        return DraftedToken(token, quantized, kept, threshold, signals)

    def _payload(self, tokens: Sequence[DraftedToken]) -> bytes:
        return encode_block(
            self._codec, [each.token for each in tokens], [each.quantized for each in tokens]
        )

    def _guessed(self, step: int, q: NDArray[np.float64]) -> int:
        return self._rule.guess(step, Distribution.from_dense(q))

    def _guess(self, token: int | None) -> None:
        """Go on as if the newest block stood, with the likeliest token behind it."""
        if token is None:
            raise ValueError("nothing was guessed")
        block = self.sent[-1]
        self.line.append(token)
        self._carried = block.start.after(block, block.count, token)


class SpeculativeJudging(Judging):
    """Every token of a block is judged, and one more is given."""

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
