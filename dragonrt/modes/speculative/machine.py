"""Speculative decoding over a network (SPEC 2; QSV, SQS).

The device drafts from its distributions as the codec transmits them; the cloud verifies a block in
one forward. With the rules coupled and rejection the text is exactly the cloud model's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import Distribution, Step, encode_block
from dragonrt.modes.blocks import (
    Advance,
    Block,
    BlockState,
    DecidedDraft,
    DraftedToken,
    ReadBlock,
    rule_and_codec,
)
from dragonrt.modes.drafter import Drafting
from dragonrt.modes.mode import ModeError, Postprocess, Prediction, Prepared, Work
from dragonrt.modes.prefix import LONGEST_MATCH, Lookup
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeResources, SpeculativeSettings
from dragonrt.modes.verifier import Judging
from dragonrt.sampling.rules import VerifyResult
from dragonrt.wire.fields import MAX_BLOCK, MAX_PAYLOAD


@dataclass(frozen=True, slots=True)
class _Drafted:
    """One draft: the next `token` of the block, or a `guess` behind it.

    `payload` is the block's if it ends here: with the token, or without one that does not fit.
    `block` is a new one: still empty as a controller has just planned it, or looked up.
    """

    token: DraftedToken | None = None
    guess: int | None = None
    payload: bytes | None = None
    block: Block | None = None


class SpeculativeDrafting(Drafting):
    """Drafts blocks with the device's model; several blocks may await verdicts at once.

    The cloud adds a token to each accepted block. The device guesses it and drafts the next block
    behind the guess. After a rejected draft or a wrong guess, it drafts again from the decided
    tokens. A controller or the settings choose where a block ends.
    """

    def __init__(
        self, question: Question, settings: SpeculativeSettings, resources: SpeculativeResources
    ) -> None:
        super().__init__(question)
        self._settings = settings
        self._controller = resources.controller
        self.controlled, self.rate = self._controller is not None, resources.rate
        self._rule, self._codec = rule_and_codec(question, settings, resources)
        longest = 8 * min(self._codec.longest, MAX_PAYLOAD) - 16
        self._longest_bits = min(longest, settings.budget or longest)
        self._block: Block | None = None  # being drafted
        threshold = resources.threshold or settings.first_threshold
        self._state = BlockState(threshold)

    @property
    @override
    def ready(self) -> bool:
        if len(self.sent) >= self._settings.outstanding or self._settings.length == 0:
            return False
        return self._block is not None or self.finish_at(len(self.prefix)) is None

    @override
    def postprocess(self, rate: float) -> Postprocess:
        block, step = self._block, len(self.prefix)
        if block is None and self.sent and self.sent[-1].end == step:
            return lambda predictions: _Drafted(
                guess=self._guessed(step, self._rule.shape(predictions[0].p))
            )
        if block is None:
            longest = self._longest(step, self._settings.length)
            block = self._block = Block(step, self.prefix.hash, longest, start=self._state)
        return lambda predictions: self._predicted(block, rate, predictions[0])

    @override
    def take_draft(self, result: _Drafted) -> Advance:
        if result.block is not None:  # a result stays as it is
            self._block = replace(result.block, tokens=list(result.block.tokens))
            for each in result.block.tokens:
                self.prefix.append(each.token)
        block = self._block
        if block is None or (result.token is None and result.payload is None):
            self._guess(result.guess)
            return Advance()
        if result.token is not None:
            block.tokens.append(result.token)
            self.prefix.append(result.token.token)
        if result.payload is None:
            return Advance()
        self._block, block.payload = None, result.payload
        if block.resolution is not None and self._codec.has_resolution:
            block.resolutions = (block.resolution,)
        self.sent.append(block)
        if result.guess is not None and self.ready:
            self._guess(result.guess)
        return Advance(block=block)

    @override
    def take_verdict(self, accepted: int, token: int) -> Advance:
        if not self.sent or accepted > self.sent[0].count:
            raise ModeError(f"a verdict accepts {accepted} tokens that were not drafted")
        block = self.sent.popleft()
        whole, step = accepted == block.count, block.step + accepted
        decided = [DecidedDraft(each.token, True) for each in block.tokens[:accepted]]
        decided.append(DecidedDraft(token, None if whole else False))
        cut = not whole or self.prefix.tokens[step : step + 1] != [token]
        if cut and step < self.decided:
            raise ModeError(f"a verdict gives another token at step {step} than was decided")
        if cut:
            self._drop_drafts(step)
            self.prefix.append(token)
            self._state = block.start.after(block, accepted, token)
        return Advance(self.decide(decided[self.decided - block.step :]), cut=cut)

    @override
    def take_target(self, step: int, prefix_hash: int, token: int) -> Advance:
        prefix = self.prefix
        if not self._settings.decodes:
            return super().take_target(step, prefix_hash, token)
        if step != self.decided or prefix_hash != prefix.hashes[step]:
            raise ModeError(
                f"a target token of step {step} came that follows another text than is decided"
            )
        drafted = [each for each in (*self.sent, self._block) if each is not None]
        block = next((each for each in drafted if step <= each.end), None)
        within = block is not None and block.step <= step < block.end
        if prefix.tokens[step : step + 1] == [token]:
            return Advance(self.decide([DecidedDraft(token, True if within else None)]))
        verdicts = tuple(self._contradicted(step, token))
        if block is not None:
            start = block.start
            self._state = start.after(block, step - block.step, token) if block.tokens else start
        self._drop_drafts(step)
        prefix.append(token)
        decided = self.decide([DecidedDraft(token, False if within else None)])
        return Advance(decided, cut=True, verdicts=verdicts)

    def _contradicted(self, step: int, token: int) -> Iterator[tuple[int, int, int]]:
        """The verdicts on the blocks sent that follow from another token at `step`."""
        for block in self.sent:
            if step <= block.end:
                yield block.count, step - block.step, token
                return
            yield block.count, block.count, self.prefix.tokens[block.end]

    @override
    def postprocess_alone(self) -> Postprocess:
        step, rule = self.decided, self._rule
        return lambda predictions: rule.draft(
            step, Distribution.from_dense(rule.shape(predictions[0].p))
        )

    @override
    def rewind(self) -> None:
        oldest = self.sent[0] if self.sent else self._block
        if oldest is not None:
            self._state = oldest.start
        self._drop_drafts(self.decided)

    def _drop_drafts(self, step: int) -> None:
        """Forget all that was drafted from `step` on."""
        self.prefix.cut(step)
        self.sent.clear()
        self._block = None

    # Planning a block: where it ends, and with which resolution.

    def _longest(self, step: int, length: int) -> int:
        # The cloud adds a token to every block: nobody need draft the answer's last one.
        return max(1, min(length, self.question.max_tokens - step - 1))

    def _predicted(self, block: Block, rate: float, prediction: Prediction) -> _Drafted:
        """Beside the loop: the next token of a block, or its end."""
        planned = None
        if self._controller is not None and not block.tokens:
            action = self._controller.choose(block.start.state(float(prediction.p.max()), rate))
            longest = self._longest(block.step, min(action.length, MAX_BLOCK))
            planned = block = replace(block, longest=longest, resolution=action.resolution)
        q = self._rule.shape(prediction.p)
        token = self._drafted(block, q)
        if block.tokens and block.bits + token.bits > self._longest_bits:
            guess = self._guessed(block.end, q)
            return _Drafted(guess=guess, payload=self._payload(block.tokens))
        tokens = [*block.tokens, token]
        payload = self._payload(tokens) if self._is_complete(block, tokens) else None
        return _Drafted(token, payload=payload, block=planned)

    def _is_complete(self, block: Block, tokens: Sequence[DraftedToken]) -> bool:
        return len(tokens) >= block.longest or tokens[-1].token in self.question.stop_tokens

    def _drafted(self, block: Block, q: NDArray[np.float64]) -> DraftedToken:
        """The next token of a block, drafted from what the cloud will see (SPEC 0)."""
        threshold, step = block.threshold, block.end
        beta = threshold.beta if threshold is not None else None
        quantized = self._codec.quantize(q, Step(step, block.resolution, beta))
        sees = self._rule.drafts_from_quantized
        source = quantized.distribution if sees else Distribution.from_dense(q)
        token = self._rule.draft(step, source)
        kept = q if self._controller is not None else None
        return DraftedToken(token, quantized, kept, threshold)

    def _payload(self, tokens: Sequence[DraftedToken]) -> bytes:
        quantized = [each.quantized for each in tokens]
        return encode_block(self._codec, [each.token for each in tokens], quantized)

    def _guessed(self, step: int, q: NDArray[np.float64]) -> int:
        return self._rule.guess(step, Distribution.from_dense(q))

    def _guess(self, token: int | None) -> None:
        """Go on as if the newest block were accepted, with the likeliest token behind it."""
        if token is None:
            raise ValueError("nothing was guessed")
        block = self.sent[-1]
        self.prefix.append(token)
        self._state = block.start.after(block, block.count, token)


class LookupDrafting(SpeculativeDrafting):
    """Drafts blocks by lookup in this side's documents, the question and the answer so far.

    If nothing is found, an empty block requests a token, unless the cloud decodes by itself.
    """

    def __init__(
        self, question: Question, settings: SpeculativeSettings, resources: SpeculativeResources
    ) -> None:
        super().__init__(question, settings, resources)
        self._lookup, self._least = Lookup(), LONGEST_MATCH if settings.decodes else 1
        self._vocabulary = resources.vocabulary
        self._passed: int | None = None  # the hash of a prefix behind which nothing is looked up

    @override
    def prepared(self, prepared: Prepared) -> None:
        self._lookup = Lookup((prepared.question, *prepared.texts))

    @property
    @override
    def ready(self) -> bool:
        return self._passed != self.prefix.hash and super().ready

    @override
    def work(self, rate: float) -> Work:
        step, tokens = len(self.prefix), list(self.prefix.tokens)
        behind = bool(self.sent) and self.sent[-1].end == step
        longest = self._longest(step, self._settings.length)
        block = Block(step, self.prefix.hash, longest, start=self._state)
        return Work(lambda _: self._looked_up(block, tokens, behind))

    @override
    def take_draft(self, result: _Drafted) -> Advance:
        if result != _Drafted():
            return super().take_draft(result)
        self._passed = self.prefix.hash
        return Advance()

    @override
    def _drop_drafts(self, step: int) -> None:
        super()._drop_drafts(step)
        self._passed = None

    def _looked_up(self, block: Block, tokens: Sequence[int], behind: bool) -> _Drafted:
        """Beside the loop: a block and a guess; the guess alone `behind` a block; or nothing."""
        matched, following = self._lookup.find(tokens)
        if matched < self._least:  # a block takes a forward, and the cloud looks up by itself
            following = ()
        if behind:
            return _Drafted(guess=next(iter(following), None))
        block = replace(block, tokens=[])
        for token in following:
            certain = np.zeros(self._vocabulary)
            certain[token] = 1.0
            drafted = self._drafted(block, certain)
            if block.tokens and block.bits + drafted.bits > self._longest_bits:
                break
            block.tokens.append(drafted)
            if self._is_complete(block, block.tokens):
                break
        if not block.tokens and self._settings.decodes:
            return _Drafted()
        guess = next(iter(following[block.count :]), None)
        return _Drafted(guess=guess, payload=self._payload(block.tokens), block=block)


class SpeculativeJudging(Judging):
    """Verifies a block on the cloud by the rule in the settings, and adds the token after it."""

    def __init__(
        self, question: Question, settings: SpeculativeSettings, resources: SpeculativeResources
    ) -> None:
        self.decodes, self.looks_up = settings.decodes, settings.draft == "lookup"
        self._rule, self.codec = rule_and_codec(question, settings, resources)

    @override
    def answer(self, block: ReadBlock, predictions: Sequence[Prediction]) -> VerifyResult:
        return self._rule.verify(
            block.step, block.tokens, block.q, lambda n: self._rule.shape(predictions[n].p)
        )

    @override
    def decoding(self, step: int, prediction: Prediction) -> int:
        # What follows an empty block.
        return self._rule.verify(step, (), (), lambda n: self._rule.shape(prediction.p)).token
