"""What a device that keeps its drafts holds a cloud to, which may lie (SPEC 1.11). Pure.

A guard sees the decided steps in their order and nothing else, so what it rules is a function of
the text: no timing and no draft of a dead line can move it.

level             guards
drafts            none: the cloud reads the device's drafts anyway
answer            SteadyRelevance, Steering
redacted          SteadyRelevance, Withholding
"""

import math
from dataclasses import dataclass
from typing import Final, Protocol

from dragonrt.modes.deciding import Mixed
from dragonrt.modes.drafts import SideDraft
from dragonrt.modes.evidence import evidence_bits
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.side import Side

STEERED_BITS: Final = 8.0
"""How far a cloud may lead an answer away from the device's own drafts before it is watched."""
CARRIED_BITS: Final = 16.0
"""What the device's documents may then add to the answer while the cloud reads it."""
STEERED: Final = (
    "the cloud led the answer to where only your documents go on: it hears no more of this answer"
)
SURE: Final = 1e-6
"""The least probability that a document is a witness (`language.reader.SUREST`)."""
DIGITS: Final = 1e-4
"""Scores that differ by no more have the same name in `Opened.evidence`."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of a decided token.

    Attributes:
        withheld: the cloud is not told it.
        bits: what it tells the cloud of the device's documents (`revealed_bits`), if that is known.
        ends: why the cloud's session ends before this step; empty: it goes on.
        fault: whether the cloud hears why, because it broke the protocol.
    """

    withheld: bool = False
    bits: float | None = None
    ends: str = ""
    fault: bool = False


TOLD: Final = Ruling()
WITHHELD: Final = Ruling(withheld=True, bits=0.0)


class Guard(Protocol):
    """One bound, over one answer."""

    def ruling(
        self, token: int, own: SideDraft, theirs: SideDraft | None, mixed: Mixed | None
    ) -> Ruling:
        """Rule on the next step's token; once for each step, in their order.

        `theirs` and `mixed` are None for what the device decides alone.
        """


class Guards:
    """All guards of a device in one answer. After a session has ended they withhold the rest."""

    def __init__(self, *guards: Guard) -> None:
        self._guards = guards
        self._over = False

    def ruling(
        self,
        token: int,
        own: SideDraft,
        theirs: SideDraft | None = None,
        mixed: Mixed | None = None,
    ) -> Ruling:
        """The first ruling that is not TOLD."""
        found = WITHHELD if self._over else TOLD
        for guard in self._guards:
            each = guard.ruling(token, own, theirs, mixed)
            found = each if found is TOLD else found
        self._over |= bool(found.ends)
        return found


def guards(side: Side, question: Question, settings: DragonSettings) -> Guards | None:
    """The guards of one answer; None where nothing is kept from the other side."""
    if side == "cloud" or not settings.keeps_drafts:
        return None
    bound = Withholding(settings.withhold, settings.reveal) if settings.redacts else Steering()
    return Guards(SteadyRelevance(question), bound)


def revealed_bits(token: int, own: SideDraft, theirs: SideDraft) -> float:
    """max(0, log2 p_d(x)/p_c(x)): what a cloud that said p_c learns from being told the token.

    That it is the cloud's own draft makes no difference: it may be one of several as likely. Nor do
    the sides' weights: the cloud chooses its own.
    """
    p, q = own.distribution, theirs.distribution
    if p is None or q is None:
        return 0.0
    return max(0.0, evidence_bits(p.probability(token), q.probability(token)))


def steering_bits(token: int, own: SideDraft) -> float:
    """max(0, log2 p_d(y)/p_d(x)), y the device's own draft: how far the token leads away from it.

    The cloud's distribution does not count: a little more on one token than on all others may be
    enough to force it.
    """
    p = own.distribution
    if token == own.token or p is None:
        return 0.0
    return max(0.0, evidence_bits(p.probability(own.token), p.probability(token)))


class SteadyRelevance:
    """The cloud's h̃ is bounded by what its documents can score, and does not move.

    |h̃| <= 1/T + log D for scores from -1 to 1 and D documents, and downward as much more as `doubt`
    can take off. It may move every `reweight_every` tokens.
    """

    def __init__(self, question: Question) -> None:
        scale = 1 / question.relevance_temperature
        self._digits = DIGITS * (scale + 1)
        self._most = scale + math.log(max(1, question.documents)) + self._digits
        self._least = question.doubt * math.log(SURE) - self._most
        self._every = question.reweight_every
        self._fixed: tuple[int, float] | None = None

    def ruling(
        self, token: int, own: SideDraft, theirs: SideDraft | None, mixed: Mixed | None
    ) -> Ruling:
        if theirs is None:
            return TOLD
        relevance = theirs.relevance
        if not self._least <= relevance <= self._most:
            return _fault(
                f"its documents have a relevance of {relevance:g}, possible are "
                f"{self._least:.3g} to {self._most:.3g}"
            )
        stretch = theirs.step // self._every if self._every else 0
        if self._fixed is None or self._fixed[0] != stretch:
            self._fixed = stretch, relevance
        elif abs(self._fixed[1] - relevance) > self._digits:
            return _fault(
                f"the relevance of its documents moved from {self._fixed[1]:g} to {relevance:g}"
            )
        return TOLD


def _fault(text: str) -> Ruling:
    return Ruling(withheld=True, ends=f"the cloud broke the protocol: {text}", fault=True)


@dataclass(slots=True)
class Withholding:
    """Tokens that the cloud could hardly have said, and what would reveal more than a budget.

    A token is withheld if the mixture gives it more than `likelier` times what the cloud gives it,
    or if the answer would have revealed more than `budget` bits with it.
    """

    likelier: float
    budget: float
    _revealed: float = 0.0

    def ruling(
        self, token: int, own: SideDraft, theirs: SideDraft | None, mixed: Mixed | None
    ) -> Ruling:
        if theirs is None or mixed is None or mixed.p > self.likelier * mixed.q:
            return WITHHELD
        bits = revealed_bits(token, own, theirs)
        if self._revealed + bits > self.budget:
            return WITHHELD
        self._revealed += bits
        return Ruling(bits=bits)


@dataclass(slots=True)
class Steering:
    """Ends the session of a cloud that leads the answer somewhere to read how the device goes on.

    Once the cloud has led the answer STEERED_BITS away from the device's own drafts, a token that
    takes what the device's documents add beyond CARRIED_BITS is not told, nor anything after it.
    What the device decides alone by then would be told to a cloud that comes back: it may not.
    """

    _steered: float = 0.0
    _carried: float = 0.0

    def ruling(
        self, token: int, own: SideDraft, theirs: SideDraft | None, mixed: Mixed | None
    ) -> Ruling:
        watched = self._steered >= STEERED_BITS
        bits = CARRIED_BITS + 1 if theirs is None else revealed_bits(token, own, theirs)
        if watched and self._carried + bits > CARRIED_BITS:
            return Ruling(withheld=True, ends=STEERED)
        if theirs is None:
            return TOLD
        self._carried += bits if watched else 0.0
        self._steered += steering_bits(token, own)
        return Ruling(bits=bits)
