"""Evidence of documents, against the mixture without them; guards, at the edges of their bounds."""

import math

import numpy as np
import pytest

from dragonrt.distributions import Distribution
from dragonrt.privacy.evidence import MOST_BITS, Mixed, RowShares, SideDraft, evidence_bits, likely
from dragonrt.privacy.guards import (
    STEERED,
    STEERED_BITS,
    WATCHED_BITS,
    Guards,
    Ruling,
    Steering,
    Withholding,
)
from dragonrt.sampling.rules import side_weights


class Rows:
    """A prediction: the rows' distributions, weighed by relevance."""

    def __init__(self, rows: list[list[float]], relevances: list[float]) -> None:
        self._rows = np.array(rows)
        self.weights = np.exp(relevances) / np.exp(relevances).sum()
        self.relevance = math.log(np.exp(relevances).sum())
        self.p = self.weights @ self._rows

    def shares(self, files: list[int], token: int) -> RowShares:
        tokens = likely(Distribution.from_dense(self.p), token)
        return RowShares(files, tokens, self.weights, self.weights[:, None] * self._rows[:, tokens])


ROWS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
RELEVANCES = [1.0, 0.5, -0.5]
FILES = [0, 1, 0]
CLOUD, H_CLOUD = np.array([0.05, 0.05, 0.9]), 0.2


@pytest.mark.parametrize("token", range(3))
def test_a_files_evidence_is_that_of_the_answer_without_it(token: int) -> None:
    said = Rows(ROWS, RELEVANCES)
    shares = said.shares(FILES, token)
    assert shares.carrier(token) == [0, 1, 0][token]
    eta = side_weights(said.relevance, H_CLOUD)
    p = eta[0] * said.p[token] + eta[1] * CLOUD[token]
    found = shares.without_each(token, eta[0], float(CLOUD[token]))
    for file, bits in enumerate(found):
        kept = [row for row, own in enumerate(FILES) if own != file]
        rest = Rows([ROWS[row] for row in kept], [RELEVANCES[row] for row in kept])
        without = side_weights(rest.relevance, H_CLOUD)
        q = without[0] * rest.p[token] + without[1] * CLOUD[token]
        assert bits == pytest.approx(math.log2(p / q), abs=1e-5)


def test_evidence_of_no_file_is_none_and_cut_masses_are_bounded() -> None:
    said = Rows([[1.0, 0.0, 0.0]], [0.0])
    shares = said.shares([0], 0)
    (bits,) = shares.without_each(2, 0.5, 0.9)
    assert bits == pytest.approx(-1.0), "without it the token would have been twice as likely"
    assert shares.without_each(0, 0.5, 0.0) == (MOST_BITS,)
    shares = said.shares([], 0)
    assert shares.without_each(0, 0.5, 0.1) == ()
    assert evidence_bits(0.8, 0.1) == pytest.approx(3.0)
    assert evidence_bits(0.8, 0.0) == evidence_bits(0.8, 1e-30) == MOST_BITS
    assert evidence_bits(1e-30, 0.8) == -MOST_BITS
    assert evidence_bits(0.0, 0.0) == 0.0


# Guards.


OWN, THEIRS, CARRIED, V = 1, 2, (3, 4), 8
"""The tokens that each side drafts, and two that only the device's documents hold."""


def drafted(token: int, *p: float, step: int = 0, kept: float = 0.0) -> SideDraft:
    """A draft from the probabilities of OWN and THEIRS, or of a side that is sure of its token."""
    dense = np.full(V, 1e-6)
    dense[token] = 1 - (V - 1) * 1e-6
    if p:
        dense[:] = (0.0, *p, *[0.0] * (V - 3))
    distribution = Distribution.from_dense(dense)
    return SideDraft(step, 0, token, b"", 0.0, 0.0, distribution, kept=kept)


def mixed(p: float, q: float) -> Mixed:
    return Mixed(0.5, p, q, None, (), 0.0)


def steered(bits: float) -> tuple[int, SideDraft, SideDraft]:
    """A token of the cloud that is so many bits from the device's draft, and reveals nothing."""
    return THEIRS, drafted(OWN, 0.5, 0.5 * 2**-bits), drafted(THEIRS, 0.0, 1.0)


def contributing(bits: float) -> tuple[int, SideDraft, SideDraft]:
    """A token of the device that reveals so many bits, and steers by none."""
    return OWN, drafted(OWN, 1.0, 0.0), drafted(OWN, 2**-bits, 0.0)


ALONE = OWN, drafted(OWN, 1.0, 0.0), None
"""A token that the device decides alone."""
HALF = contributing(WATCHED_BITS / 2)


@pytest.mark.parametrize(
    ("tokens", "ends"),
    [
        ([steered(STEERED_BITS), HALF, HALF], False),
        ([steered(STEERED_BITS), HALF, HALF, contributing(0.5)], True),
        ([steered(STEERED_BITS / 2), HALF, HALF, contributing(1.0)], False),
        ([*[steered(STEERED_BITS / 2)] * 2, HALF, HALF, contributing(1.0)], True),
        ([steered(STEERED_BITS), ALONE], True),
        ([steered(STEERED_BITS / 2), ALONE], False),
    ],
)
def test_steering_ends_the_session_exactly_above_its_bounds(
    tokens: list[tuple[int, SideDraft, SideDraft | None]], ends: bool
) -> None:
    guards, found = Guards(Steering()), Ruling()
    for token, own, theirs in tokens:
        found = guards.ruling(token, own, theirs)
    assert bool(found.ends) is ends


def test_after_the_end_all_is_withheld() -> None:
    guards = Guards(Steering())
    guards.ruling(*steered(STEERED_BITS))
    assert guards.ruling(*ALONE).ends
    assert guards.ruling(*contributing(0.0)).withheld


def test_withholding_at_its_edges() -> None:
    token, own, theirs = contributing(2.0)
    assert not Withholding(8.0, 4.0).ruling(token, own, theirs, mixed(0.8, 0.1)).withheld
    assert Withholding(8.0, 4.0).ruling(token, own, theirs, mixed(0.81, 0.1)).withheld
    guard = Withholding(8.0, 4.0)
    rulings = [guard.ruling(token, own, theirs, mixed(0.1, 0.1)).withheld for _ in range(3)]
    assert rulings == [False, False, True]


@pytest.mark.parametrize(("kept", "ends"), [(-40.0, False), (-6.0, True), (0.0, True)])
def test_a_number_that_the_device_does_not_hold_is_no_steering(kept: float, ends: bool) -> None:
    """Behind it all of its documents have lost their weight; a name or words cost them less."""
    guard = Steering()
    assert not guard.ruling(THEIRS, drafted(OWN), drafted(THEIRS), None).ends
    rulings = [
        guard.ruling(
            token, drafted(token, kept=kept if step == 1 else 0.0), drafted(OWN, step=step), None
        )
        for step, token in enumerate(CARRIED, start=1)
    ]
    assert [each.ends for each in rulings] == ([STEERED, STEERED] if ends else [None, None])
