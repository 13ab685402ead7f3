"""The bounds of guards, at their edges."""

from dataclasses import dataclass
from typing import Any

import pytest

from dragonrt.privacy.evidence import evidence_bits
from dragonrt.privacy.guards import (
    STEERED_BITS,
    WATCHED_BITS,
    Guards,
    Ruling,
    Steering,
    Withholding,
)

OWN, THEIRS = 1, 2
"""The tokens that each side drafts."""


@dataclass(frozen=True)
class Said:
    """A distribution: the probabilities of two tokens."""

    own: float
    theirs: float

    def probability(self, token: int) -> float:
        return {OWN: self.own, THEIRS: self.theirs}[token]


@dataclass(frozen=True)
class Drafted:
    """Implements guards.Draft."""

    token: int
    distribution: Any
    step: int = 0
    relevance: float = 0.0
    kept: float = 0.0


@dataclass(frozen=True)
class Mixed:
    """Implements guards.Mixture."""

    p: float
    q: float


def steered(bits: float) -> tuple[int, Drafted, Drafted]:
    """A token of the cloud that is so many bits from the device's draft, and reveals nothing."""
    p = Said(0.5, 0.5 * 2**-bits)
    return THEIRS, Drafted(OWN, p), Drafted(THEIRS, Said(0.0, 1.0))


def contributing(bits: float) -> tuple[int, Drafted, Drafted]:
    """A token of the device that reveals so many bits, and steers by none."""
    return OWN, Drafted(OWN, Said(1.0, 0.0)), Drafted(OWN, Said(2**-bits, 0.0))


def after(*tokens: tuple[int, Drafted, Drafted | None]) -> Ruling:
    """The last ruling of a guard that saw all these."""
    guards, found = Guards(Steering()), Ruling()
    for token, own, theirs in tokens:
        found = guards.ruling(token, own, theirs)
    return found


def test_bits_are_what_they_are_made_of() -> None:
    token, own, _ = steered(3.0)
    p = own.distribution
    assert evidence_bits(p.probability(OWN), p.probability(token)) == pytest.approx(3.0)


def test_exactly_the_bound_of_steering_is_watched() -> None:
    much = contributing(WATCHED_BITS / 2)
    assert after(steered(STEERED_BITS), much, much, contributing(1.0)).ends
    assert not after(steered(STEERED_BITS / 2), much, much, contributing(1.0)).ends
    assert after(
        steered(STEERED_BITS / 2), steered(STEERED_BITS / 2), much, much, contributing(1.0)
    ).ends


def test_exactly_the_bound_of_what_the_documents_add_passes() -> None:
    half = contributing(WATCHED_BITS / 2)
    assert not after(steered(STEERED_BITS), half, half).ends
    assert after(steered(STEERED_BITS), half, half, contributing(0.5)).ends


def test_what_is_decided_alone_after_steering_ends_the_session() -> None:
    alone = OWN, Drafted(OWN, Said(1.0, 0.0)), None
    assert after(steered(STEERED_BITS), alone).ends
    assert not after(steered(STEERED_BITS / 2), alone).ends


def test_after_the_end_all_is_withheld() -> None:
    guards = Guards(Steering())
    guards.ruling(*steered(STEERED_BITS))
    assert guards.ruling(OWN, Drafted(OWN, Said(1.0, 0.0)), None).ends
    assert guards.ruling(*contributing(0.0)).withheld


def test_withholding_at_its_edges() -> None:
    token, own, theirs = contributing(2.0)
    assert not Withholding(8.0, 4.0).ruling(token, own, theirs, Mixed(0.8, 0.1)).withheld
    assert Withholding(8.0, 4.0).ruling(token, own, theirs, Mixed(0.81, 0.1)).withheld
    guard = Withholding(8.0, 4.0)
    rulings = [guard.ruling(token, own, theirs, Mixed(0.1, 0.1)).withheld for _ in range(3)]
    assert rulings == [False, False, True]
