"""Mode sprinter (SPEC 4; SPRINTER): a trained verifier stands in for the cloud's model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from dragonrt.control.trained import Verifier
from dragonrt.modes.blocks.drafter import BlockDrafter
from dragonrt.modes.blocks.values import blocks
from dragonrt.modes.blocks.verifier import BlockVerifier
from dragonrt.modes.entry import UNREAD, Counterpart, Host, ModeEntry
from dragonrt.modes.question import Question
from dragonrt.modes.sprinter.machine import SprinterDrafting, SprinterJudging
from dragonrt.modes.sprinter.settings import SprinterResources, SprinterSettings
from dragonrt.traces.counts import AnswerCounts


class SprinterMode(ModeEntry[SprinterSettings, SprinterResources]):
    """The one mode whose text is approximate."""

    settings = SprinterSettings
    help = "a trained verifier accepts drafts: the text is approximate"
    exact = False
    unread = UNREAD.format("the cloud's, approximately")

    @override
    def device(
        self, question: Question, settings: SprinterSettings, resources: SprinterResources
    ) -> BlockDrafter:
        drafting = SprinterDrafting(question, settings, resources)
        return BlockDrafter(drafting, settings, resources)

    @override
    def cloud(
        self, question: Question, settings: SprinterSettings, resources: SprinterResources
    ) -> BlockVerifier:
        judging = SprinterJudging(question, settings, resources)
        return BlockVerifier(judging, question, resources)

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
            **blocks(answer),
            "drafted": answer.unverified + answer.judged,
            "accepted": answer.unverified + answer.accepted_tokens,
            "unverified": answer.unverified,
            "unread": answer.unread,
            "target_calls": calls,
            "tokens_per_target_call": round(1 + answer.unverified / calls, 2) if calls else None,
        }
