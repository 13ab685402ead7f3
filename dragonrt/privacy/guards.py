"""Decide for each token of an answer whether the cloud may receive it (SPEC 1.11). Pure.

A guard reads the decided tokens in order. So a ruling depends on the text of the answer, not on
timing or on rejected drafts.

Disclosure level `drafts` has no guard, because the cloud reads the device's drafts. Level `answer`
has SteadyRelevance and Steering. Level `redacted` has SteadyRelevance and Withholding.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from dragonrt.privacy.evidence import Mixed, SideDraft, evidence_bits
from dragonrt.wire.reasons import End, Reason

STEERED_BITS: Final = 8.0
"""Bits that a cloud may steer an answer away from the device's drafts without a limit."""
WATCHED_BITS: Final = 16.0
"""Bits that the device's documents may then add to the answer while the cloud reads it."""
STEERED: Final = End(
    Reason.STEERED,
    "the cloud steered the answer to your documents alone: it receives no more of this answer",
)
SURE: Final = 1e-6  # least probability that a document is a witness (`backends.mixture.SUREST`)
DISAGREES: Final = -20.0
"""A device that keeps less, as a logarithm, holds another number (`backends.agreement.LOST`)."""
DIGITS: Final = 1e-4  # scores that differ by no more have the same name in `Opened.evidence`


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision of a guard on a token: whether the cloud receives it, or its session ends.

    Attributes:
        withheld: whether the token is withheld from the cloud.
        bits: the bits that the token reveals of the device's documents (`revealed_bits`), or None.
        ends: why the cloud's session ends before this token; None if it continues. The reason is
            sent to the cloud only if the cloud broke the protocol.
    """

    withheld: bool = False
    bits: float | None = None
    ends: End | None = None


DISCLOSED: Final = Ruling()
WITHHELD: Final = Ruling(withheld=True, bits=0.0)


class Guard(ABC):
    """A check of each decided token that bounds what one answer discloses; it has state."""

    @abstractmethod
    def ruling(
        self, token: int, own: SideDraft, theirs: SideDraft | None, mixed: Mixed | None
    ) -> Ruling:
        """Return the ruling on the next decided token; call once for each token in order.

        `own` is the device's draft. Without `theirs`, the cloud's, there is no `mixed` either.
        """


class Guards:
    """All guards of a device in one answer. After one ends the session, all tokens are withheld."""

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
        """Return a guard's first ruling that withholds the token or has bits, else to send it."""
        found = WITHHELD if self._over else DISCLOSED
        for guard in self._guards:
            each = guard.ruling(token, own, theirs, mixed)
            found = each if found is DISCLOSED else found
        self._over |= found.ends is not None
        return found


def revealed_bits(token: int, own: SideDraft, theirs: SideDraft) -> float:
    """Return max(0, log2 p_d(x)/p_c(x)): the bits that token x reveals of the device's documents.

    p_d and p_c are the device's and the cloud's distributions, without their mixture weights,
    because the cloud chooses its weight itself. Returns 0 if a distribution is unknown.
    """
    p, q = own.distribution, theirs.distribution
    if p is None or q is None:
        return 0.0
    return max(0.0, evidence_bits(p.probability(token), q.probability(token)))


def steering_bits(token: int, own: SideDraft) -> float:
    """Return max(0, log2 p_d(y)/p_d(x)): how much likelier the device's draft y is than `token` x.

    p_d is the device's distribution, so the bits measure how far the cloud moved the answer. The
    cloud's distribution does not count: a cloud can force x by making x barely the likeliest token.
    """
    p = own.distribution
    if token == own.token or p is None:
        return 0.0
    return max(0.0, evidence_bits(p.probability(own.token), p.probability(token)))


class SteadyRelevance(Guard):
    """A guard that ends the session if the cloud's side relevance h̃ is impossible or unsteady.

    h̃ is the log-sum-exp of s/T over at most D `documents` of scores s (-1 to 1), where T is the
    `temperature`. So |h̃| is at most 1/T + log D. Only `doubt`, for documents without an answer,
    may lower h̃ further. h̃ must be constant for `reweight_every` tokens at a time (0: for all).
    """

    def __init__(
        self, temperature: float, documents: int, doubt: float, reweight_every: int
    ) -> None:
        scale = 1 / temperature
        self._digits = DIGITS * (scale + 1)
        self._most = scale + math.log(max(1, documents)) + self._digits
        self._least = doubt * math.log(SURE) - self._most
        self._every = reweight_every
        self._fixed: tuple[int, float] | None = None

    @override
    def ruling(
        self, token: int, own: SideDraft, theirs: SideDraft | None, mixed: Mixed | None
    ) -> Ruling:
        if theirs is None:
            return DISCLOSED
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
        return DISCLOSED


def _fault(text: str) -> Ruling:
    end = End(Reason.PROTOCOL, f"the cloud broke the protocol: {text}")
    return Ruling(withheld=True, ends=end)


@dataclass(slots=True)
class Withholding(Guard):
    """A guard that withholds tokens that are unlikely for the cloud, or that exceed a budget.

    A token is withheld if its probability in the mixture is more than `likelier` times the cloud's,
    or if the disclosed tokens would then reveal more than `budget` bits (`revealed_bits`) in all.
    """

    likelier: float
    budget: float
    _revealed: float = 0.0

    @override
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
class Steering(Guard):
    """A guard that ends the session of a cloud that steers the answer to probe the documents.

    A cloud steers if it forces tokens against the device's drafts (`steering_bits`). After 8 bits
    of steering, the guard sums what further tokens reveal (`revealed_bits`). The session ends
    before a token that raises this sum above 16 bits, or that the device decided alone. A token
    does not count as steering if the device's documents lose their weight after it, as they do
    where they have another number than the answer.
    """

    _steered: float = 0.0
    _watched: float = 0.0
    _newest: float = 0.0  # bits of the newest token, which count unless the device lost by it

    @override
    def ruling(
        self, token: int, own: SideDraft, theirs: SideDraft | None, mixed: Mixed | None
    ) -> Ruling:
        self._steered += self._newest if own.kept > DISAGREES else 0.0
        watched = self._steered >= STEERED_BITS
        bits = WATCHED_BITS + 1 if theirs is None else revealed_bits(token, own, theirs)
        if watched and self._watched + bits > WATCHED_BITS:
            return Ruling(withheld=True, ends=STEERED)
        self._newest = 0.0
        if theirs is None:
            return DISCLOSED
        self._watched += bits if watched else 0.0
        self._newest = steering_bits(token, own)
        return Ruling(bits=bits)
