"""A device that keeps its drafts (SPEC 1.10, 1.11).

It sends target tokens only, and at level `redacted` not all of them. Guards rule on every token
before it is decided.
"""

from typing_extensions import override

from dragonrt.modes.dragon.decision import Decided
from dragonrt.modes.dragon.drafts import Drafts, SideDraft
from dragonrt.modes.dragon.messages import Draft
from dragonrt.modes.dragon.plugs import Plug
from dragonrt.modes.dragon.setup import DragonSetup
from dragonrt.modes.question import Question
from dragonrt.privacy.guards import Guard, Guards, Ruling, SteadyRelevance, Steering, Withholding
from dragonrt.privacy.redaction import MARKER


class Guarding(Plug):
    """Withholds the drafts of one device, and has guards rule on its tokens."""

    def __init__(self, setup: DragonSetup, drafts: Drafts) -> None:
        question, settings = setup.question, setup.settings
        bound: Guard = Steering()
        if settings.redacts:
            bound = Withholding(settings.withhold, settings.reveal)
        bounds = question.relevance_temperature, question.documents, question.doubt
        self._guards = Guards(SteadyRelevance(*bounds, question.reweight_every), bound)
        self._drafts = drafts
        self._marker = setup.marker

    @override
    def on_disclosed(self, question: Question) -> Question:
        drafts, transcript = self._drafts, self._drafts.transcript
        if self._marker is None:
            return question.resumed(tuple(drafts.prefix.tokens[: drafts.decided]), MARKER)
        read = transcript.prefix.tokens[: transcript.length]
        return question.redacted(MARKER, read, self._marker)

    @override
    def on_send(self, message: Draft, draft: SideDraft, now: float) -> None:
        return None

    @override
    def on_ruling(self, decided: Decided) -> Ruling:
        if decided.own is None:
            raise ValueError("a device decides with its own draft")
        return self._guards.ruling(decided.token, decided.own, decided.theirs, decided.mixed)
