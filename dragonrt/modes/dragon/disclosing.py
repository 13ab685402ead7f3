"""The sides of an answer whose device keeps its drafts (SPEC 1.10, 1.11), and which side is which.

The device sends target tokens only, and at level `redacted` not all of them. Guards rule on every
token before it is decided.
"""

from dataclasses import replace

from dragonrt.errors import DragonError
from dragonrt.modes.dragon.decision import Decided
from dragonrt.modes.dragon.drafts import DraftQueue, SideDraft
from dragonrt.modes.dragon.machine import Dragon
from dragonrt.modes.dragon.resources import DragonResources
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.dragon.terms import Terms
from dragonrt.modes.mode import Leave
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.question import Question
from dragonrt.privacy.guards import Guard, Guards, SteadyRelevance, Steering, Withholding
from dragonrt.privacy.redaction import MARKER, Redacted
from dragonrt.side import Side
from dragonrt.traces.events import Cause
from dragonrt.traces.notices import NoticeKind
from dragonrt.wire.reasons import End, Reason


def dragon(
    side: Side, question: Question, settings: DragonSettings, resources: DragonResources
) -> Dragon:
    """Return the machine of one side of an answer."""
    if side == "cloud" and settings.redacts:  # during a long withheld run it receives nothing
        timeouts = resources.timeouts
        resources = replace(resources, timeouts=replace(timeouts, answer_s=timeouts.idle_s))
    terms = Terms(side, question, settings, resources)
    keeps = side == "device" and settings.keeps_drafts
    return KeepingDevice(terms) if keeps else Dragon(terms)


class KeepingDevice(Dragon):
    """A device that keeps its drafts."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        question, settings, drafts = terms.question, terms.settings, self._drafts
        bound: Guard = Steering()
        if settings.redacts:
            marker = terms.resources.marker
            if not marker:
                raise DragonError(
                    "the model has no tokens for what is withheld: use --disclose answer"
                )
            bound = Withholding(settings.withhold, settings.reveal)
            read = TokenPrefix(drafts.prefix.hashes[0])
            drafts.transcript = Redacted(
                drafts.prefix, read, drafts.decided, terms.resources.marker
            )
            drafts.theirs = DraftQueue(settings.window, drafts.transcript.length)
        bounds = question.relevance_temperature, question.documents, question.doubt
        steady = SteadyRelevance(*bounds, question.reweight_every)
        self._guards = Guards(steady, bound)
        self._partner = ""

    def disclosed(self, question: Question) -> Question:
        if not self._terms.settings.redacts:
            return question.resumed(tuple(self.decided), MARKER)
        transcript = self._drafts.transcript
        read = transcript.prefix.tokens[: transcript.length]
        return question.redacted(MARKER, read, self._terms.resources.marker)

    def _joined(self, peer: str, session: int, now: float) -> None:
        self._partner = peer
        super()._joined(peer, session, now)

    def _send_draft(self, draft: SideDraft, now: float) -> None:
        """Send nothing."""

    def _decide(self, decided: Decided, cause: Cause, now: float) -> bool:
        own, theirs, mixed = decided.own, decided.theirs, decided.mixed
        if own is None:
            raise ValueError("a device decides with its own draft")
        ruling = self._guards.ruling(decided.token, own, theirs, mixed)
        if ruling.ends is not None:
            self._end_session(ruling.ends, now)
            if mixed is not None:  # this step is decided alone, with another token
                return False
        return super()._decide(replace(decided, ruling=ruling), cause, now)

    def _end_session(self, end: End, now: float) -> None:
        """Leave the cloud for good. Of the reason it receives only a fault of its own."""
        told = end if end.reason is Reason.PROTOCOL else End(Reason.FINISHED, "")
        self._out.leave.append(Leave(self._partner, told))
        if self._alone:
            self._notice(NoticeKind.PARTED, end.text, end.reason)
        else:
            self._leave_alone(end, now)
