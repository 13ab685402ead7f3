"""What both sides agree on for one answer where one side drafts blocks and the other verifies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dragonrt.distributions import Codec, codec
from dragonrt.errors import DragonError
from dragonrt.runtime.outcome import Turn
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.speculative import SpeculativeRule, speculative_rule
from dragonrt.wire import messages as wire


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The settings of one answer: the device chooses them, `OpenBlocks` carries them to the cloud.

    `mode` is "speculative", "federated" or "sprinter". `rule` decides which drafted tokens stand,
    `codec` codes what travels with them. The other fields are those of `Plan`.
    """

    mode: str
    seed: int
    sampler: Sampler
    rule: str = "coupled"
    codec: str = "ids"
    max_tokens: int = 64
    stop_tokens: tuple[int, ...] = ()
    documents: int = 2
    relevance_temperature: float = 0.05
    reweight_every: int = 0

    def speculative_rule(self) -> SpeculativeRule:
        """The rule of this plan with its keyed noise."""
        return speculative_rule(self.rule, Noise(self.seed), self.sampler)

    def block_codec(self, vocabulary: int) -> Codec:
        """The codec of blocks; drafts that are not sampled from what travels go by their ids."""
        by_id = not self.speculative_rule().drafts_from_quantized
        return codec(self.codec, vocabulary, tokens_by_id=by_id)

    def for_answer(self, seed: int, stop_tokens: tuple[int, ...]) -> Self:
        """This plan with the seed and the stop tokens of one answer."""
        return replace(self, seed=seed, stop_tokens=stop_tokens)

    def settings(self) -> dict[str, Any]:
        """What a reader of the answer wants to know of it."""
        return {"mode": self.mode, "rule": self.rule, "codec": self.codec}

    def check(self) -> None:
        """Refuse names that this side does not know, with their package's own line."""
        codec(self.codec, 2)
        self.speculative_rule()

    def check_distributions(self) -> None:
        """Refuse a codec that sends no distributions where the rule verifies with them."""
        if self.codec == "ids" and self.speculative_rule().sends_distributions:
            raise DragonError(
                f"the rule {self.rule} verifies with distributions and the codec ids sends none: "
                "choose a codec that does, such as ksqs:64:100"
            )

    def open_message(
        self, question: str, history: Sequence[Turn], accepted: Sequence[int], number: int
    ) -> wire.OpenBlocks:
        """The OpenBlocks that carries this plan to the other side."""
        return wire.OpenBlocks(
            session=number,
            mode=self.mode,
            prompt=question,
            history=tuple(history),
            seed=self.seed,
            temperature=self.sampler.temperature,
            top_k=self.sampler.top_k,
            top_p=self.sampler.top_p,
            min_p=self.sampler.min_p,
            max_tokens=self.max_tokens,
            stop_tokens=self.stop_tokens,
            rule=self.rule,
            codec=self.codec,
            documents=self.documents,
            relevance_temperature=self.relevance_temperature,
            reweight_every=self.reweight_every,
            accepted=tuple(accepted),
        )

    @classmethod
    def of(cls, message: wire.OpenBlocks) -> "BlockPlan":
        """The plan in an OpenBlocks; DragonError for names this side does not know."""
        plan = cls(
            mode=message.mode,
            seed=message.seed,
            sampler=Sampler(message.temperature, message.top_k, message.top_p, message.min_p),
            rule=message.rule,
            codec=message.codec,
            max_tokens=message.max_tokens,
            stop_tokens=message.stop_tokens,
            documents=message.documents,
            relevance_temperature=message.relevance_temperature,
            reweight_every=message.reweight_every,
        )
        plan.check()
        return plan
