"""Mode speculative (SPEC 2; QSV, SQS): the device drafts blocks, the cloud verifies them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from dragonrt.control.trained import controller
from dragonrt.modes.blocks import block_statistics
from dragonrt.modes.drafter import BlockDrafter
from dragonrt.modes.question import Question
from dragonrt.modes.settings import UNREAD, Counterpart, Host
from dragonrt.modes.speculative.machine import (
    LookupDrafting,
    SpeculativeDrafting,
    SpeculativeJudging,
)
from dragonrt.modes.speculative.settings import SpeculativeResources, SpeculativeSettings
from dragonrt.modes.verifier import VerifiedMode
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import AnswerOpened, Record, ThresholdMoved


class SpeculativeMode(VerifiedMode[SpeculativeSettings, SpeculativeResources]):
    """The ModeEntry of speculative: the device drafts blocks, and the cloud verifies them."""

    settings, judging = SpeculativeSettings, SpeculativeJudging
    help = "this side drafts blocks, and the cloud's model verifies them"
    unread = UNREAD.format("the cloud's")

    @override
    def device(
        self, question: Question, settings: SpeculativeSettings, resources: SpeculativeResources
    ) -> BlockDrafter:
        drafting = LookupDrafting if settings.draft == "lookup" else SpeculativeDrafting
        return BlockDrafter(drafting(question, settings, resources), settings, resources)

    @override
    def prepare(
        self, host: Host, others: Mapping[str, Counterpart], settings: SpeculativeSettings
    ) -> SpeculativeResources:
        name = settings.controller  # None at the cloud: the setting does not travel
        return SpeculativeResources.of(host, controller=name and host.controller(name))

    @override
    def check(self, settings: SpeculativeSettings, model: str) -> None:
        if settings.controller is not None:
            controller(settings.controller, model)

    @override
    def next_resources(
        self, resources: SpeculativeResources, records: Sequence[Record]
    ) -> SpeculativeResources:
        # The next answer continues C-SQS's threshold.
        counts = AnswerCounts()
        for record in records:
            if isinstance(record.event, AnswerOpened | ThresholdMoved):
                counts.take(record)
        dropped = counts.dropped_mass
        return resources if dropped is None else replace(resources, threshold=dropped.threshold)

    @override
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        dropped = answer.dropped_mass
        conformal = {} if dropped is None else {"conformal": dropped.to_json()}
        return {**block_statistics(answer), "decoded_by_cloud": answer.decoded, **conformal}
