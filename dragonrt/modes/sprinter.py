"""Approximate verification (SPEC 4; SPRINTER): a classifier on the device predicts acceptance.

The device shows drafts that this classifier, its verifier, accepts, and asks the cloud about the
first other draft. The cloud's model runs less often, but **the text is not exactly the cloud
model's**: it follows a mixture of both models (Theorem 1). No other mode is approximate.

Verifiers are trained on texts that both models read. They know nothing of the cloud's documents: a
device that has no document for a question may never ask the cloud about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta
from typing_extensions import override

from dragonrt.control.trained import TokenVerifier, Verifier
from dragonrt.distributions import Step, encode_block
from dragonrt.errors import DragonError
from dragonrt.modes.blocks import (
    Advance,
    Block,
    DecidedDraft,
    DraftedToken,
    ReadBlock,
    block_statistics,
    rule_and_codec,
)
from dragonrt.modes.drafter import BlockDrafter, Drafting
from dragonrt.modes.messages import Block as BlockMessage
from dragonrt.modes.mode import ModeError, OnLoss, Postprocess, Prediction
from dragonrt.modes.question import Question
from dragonrt.modes.settings import (
    LOSS_HELP,
    UNREAD,
    VERIFIER_HELP,
    Counterpart,
    Host,
    Resources,
    Settings,
    check_verifies,
)
from dragonrt.modes.verifier import Judging, VerifiedMode
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Rejection, VerifyResult, corrected
from dragonrt.settings import PathText, Share, Text, check, own, setting
from dragonrt.traces.counts import AnswerCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class SprinterSettings(Settings):
    """Mode sprinter: a trained classifier (verifier) on the device accepts drafts. Approximate.

    A drafted token goes to the cloud if the verifier's probability that it is acceptable is below
    `threshold`. So does the last of `run_length` tokens in a row without a verdict of the cloud.
    """

    mode: ClassVar[str] = "sprinter"
    verifies: ClassVar[bool] = True

    rule: Text = setting(Rejection.name, "Decision rule: rejection.")
    codec: Text = setting("topk:64:renorm", "Codec of the doubtful token: topk:K:renorm …")
    verifier: PathText | None = own(None, VERIFIER_HELP)
    threshold: Share | None = own(
        None, "The cloud decides tokens below this score. Default: the verifier's own.", rare=True
    )
    run_length: Annotated[int, Meta(ge=1, le=256)] = own(
        32, "The cloud decides at least every Nth token.", rare=True
    )
    on_loss: OnLoss = own("alone", LOSS_HELP)

    def __post_init__(self) -> None:
        check(self)
        if self.rule != Rejection.name:
            raise DragonError(
                f"sprinter verifies by the rule {Rejection.name}, not {self.rule}: leave --rule out"
            )
        check_verifies(self.rule, self.codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class SprinterResources(Resources):
    """What a side needs in mode sprinter; a device needs a `verifier`, an acceptance classifier."""

    verifier: TokenVerifier | None = None


@dataclass(frozen=True, slots=True)
class _Drafted:
    """A token that passes; or, with its payload, one for the cloud."""

    token: DraftedToken
    payload: bytes | None = None


class SprinterDrafting(Drafting):
    """Drafts tokens until the device's trained verifier rejects a token (SPRINTER Algorithm 2).

    A token that the verifier accepts is decided at once. A rejected token goes to the cloud as a
    block of one token, with the tokens decided since the cloud's last verdict; the cloud reads them
    all and decides the rejected one. At the end of the answer nothing is sent.
    """

    hidden = True

    def __init__(
        self, question: Question, settings: SprinterSettings, resources: SprinterResources
    ) -> None:
        super().__init__(question)
        verifier = resources.verifier
        if verifier is None:
            raise DragonError(
                "mode sprinter needs a verifier trained for the two models: --verifier"
            )
        self._rule, self._codec = rule_and_codec(question, settings, resources)
        self._known = self.decided  # to the cloud
        self._run_length = settings.run_length
        self._verifier = verifier
        self._threshold = verifier.threshold if settings.threshold is None else settings.threshold
        self._run = 0  # tokens decided since the cloud's last verdict

    @property
    @override
    def ready(self) -> bool:
        return not self.sent

    @override
    def postprocess(self, rate: float) -> Postprocess:
        step, last_of_run = len(self.prefix), self._run + 1 >= self._run_length

        def postprocess(predictions: Sequence[Prediction]) -> _Drafted:
            (prediction,) = predictions
            token = self._drafted(step, prediction)
            likely = self._verifier.probability(prediction.hidden, prediction.p, token.token)
            if likely >= self._threshold and not last_of_run:
                return _Drafted(token)
            payload = encode_block(self._codec, [token.token], [token.quantized])
            return _Drafted(token, payload)

        return postprocess

    def _drafted(self, step: int, prediction: Prediction) -> DraftedToken:
        quantized = self._codec.quantize(self._rule.shape(prediction.p), Step(step))
        return DraftedToken(self._rule.draft(step, quantized.distribution), quantized)

    @override
    def take_draft(self, result: _Drafted) -> Advance:
        if result.payload is None:
            return self.decide_alone(result.token.token)
        known = tuple(self.prefix.tokens[self._known :])
        block = Block(self.decided, self.prefix.hash, tokens=[result.token], decided=known)
        block.payload = result.payload
        self.sent.append(block)
        self.prefix.append(result.token.token)
        return Advance(block=block)

    @override
    def take_verdict(self, accepted: int, token: int) -> Advance:
        if self.ready:
            raise ModeError("a verdict came, and no token waits for one")
        matches = token == self.prefix.tokens[self.decided]
        if accepted != matches:
            raise ModeError("a verdict gives another token than the one that it accepts")
        self.sent.clear()
        self.prefix.replace_from(self.decided, [token])
        self.decided = self._known = len(self.prefix)
        self._run = 0
        return Advance((DecidedDraft(token, matches),))

    @override
    def postprocess_alone(self) -> Postprocess:
        step = len(self.prefix)
        return lambda predictions: self._drafted(step, predictions[0]).token

    @override
    def decide_alone(self, result: int) -> Advance:
        self.prefix.append(result)
        self._run += 1
        return Advance(self.decide([DecidedDraft(result, True)]))

    @override
    def rewind(self) -> None:
        super().rewind()
        self._known = self.decided  # as a session begins with all that is decided


class SprinterJudging(Judging):
    """Verifies on the cloud a block's only token by rejection sampling: accepts or replaces it."""

    adds_token = False

    def __init__(
        self, question: Question, settings: SprinterSettings, resources: SprinterResources
    ) -> None:
        self._noise = Noise(question.seed)
        self._rule, self.codec = rule_and_codec(question, settings, resources)

    @override
    def read(self, block: BlockMessage) -> ReadBlock:
        if block.count != 1:
            raise ModeError(f"a block of a sprinter has one token to verify, not {block.count}")
        return super().read(block)

    @override
    def answer(self, block: ReadBlock, predictions: Sequence[Prediction]) -> VerifyResult:
        if block.q is None:
            raise ModeError("a sprinter's block needs the distribution of its token")
        p = self._rule.shape(predictions[0].p)
        token = corrected(self._noise, block.step, block.tokens[0], block.q[0], p)
        return VerifyResult(int(token == block.tokens[0]), token)


class SprinterMode(VerifiedMode[SprinterSettings, SprinterResources]):
    """The ModeEntry of sprinter, the only mode whose text is approximate."""

    settings, judging = SprinterSettings, SprinterJudging
    help = "a trained verifier accepts drafts, so the text is approximate"
    exact = False
    unread = UNREAD.format("the cloud's, approximately")

    @override
    def device(
        self, question: Question, settings: SprinterSettings, resources: SprinterResources
    ) -> BlockDrafter:
        drafting = SprinterDrafting(question, settings, resources)
        return BlockDrafter(drafting, settings, resources)

    @override
    def prepare(
        self, host: Host, others: Mapping[str, Counterpart], settings: SprinterSettings
    ) -> SprinterResources:
        found = None
        if host.side == "device":
            (cloud,) = others.values()
            found = host.verifier(settings.verifier, cloud.fingerprint())
        return SprinterResources.of(host, verifier=found)

    @override
    def check(self, settings: SprinterSettings, model: str) -> None:
        if settings.verifier is not None:
            Verifier.load(Path(settings.verifier))

    @override
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        # `drafted` and `accepted` are SPRINTER's Theorem 7's, which counts tokens that passed.
        calls = answer.verified
        return {
            **block_statistics(answer),
            "drafted": answer.unverified + answer.judged,
            "accepted": answer.unverified + answer.accepted_tokens,
            "unverified": answer.unverified,
            "unread": answer.unread,
            "target_calls": calls,
            "tokens_per_target_call": round(1 + answer.unverified / calls, 2) if calls else None,
        }
