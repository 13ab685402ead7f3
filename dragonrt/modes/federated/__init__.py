"""Mode federated (SPEC 3; SPECFED): a coordinator drafts, several workers verify together."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from dragonrt.modes.federated.machine import Coordinator
from dragonrt.modes.federated.settings import FederatedResources, FederatedSettings
from dragonrt.modes.federated.workers import FederatedJudging
from dragonrt.modes.question import Question
from dragonrt.modes.settings import UNREAD, Counterpart, Host
from dragonrt.modes.verifier import VerifiedMode
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.statistics import acceptance, milliseconds


class FederatedMode(VerifiedMode[FederatedSettings, FederatedResources]):
    """Makes an answer's state machine in federated: a device drafts, several workers verify."""

    settings, judging = FederatedSettings, FederatedJudging
    help = "this side drafts blocks, and several workers verify them together"
    several = True
    unread = UNREAD.format("the workers'")

    @override
    def device(
        self, question: Question, settings: FederatedSettings, resources: FederatedResources
    ) -> Coordinator:
        return Coordinator(question, settings, resources)

    @override
    def prepare(
        self, host: Host, others: Mapping[str, Counterpart], settings: FederatedSettings
    ) -> FederatedResources:
        members = {name: each.weight for name, each in others.items()}
        return FederatedResources.of(host, members=members)

    @override
    def statistics(self, answer: AnswerCounts) -> dict[str, Any]:
        return {
            "acceptance": acceptance(answer, "device"),
            "rounds": answer.verified,
            "drafted": answer.judged,
            "accepted": answer.accepted_tokens,
            "resampled": answer.resampled,
            "waited_ms": milliseconds(answer.verdicts_waited_s),
            "missing": dict(answer.missing),
        }
