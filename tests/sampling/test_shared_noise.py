"""Drafts from shared noise are accepted exactly when they equal the target.

Every race is integrated exactly: over two distributions raced with the same exponentials, the pairs
of winners are cones, whose probabilities have a closed form, and one point of each shows what a
rule decides there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt.distributions import Distribution
from dragonrt.sampling.noise import Noise, Purpose
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.verification import (
    SpeculativeRule,
    speculative_rule,
    token_acceptance,
)
from dragonrt.side import Side
from scripts.papers.theory import expected_acceptance_coupled

Vector = NDArray[np.float64]

RANDOM = np.random.default_rng(6).dirichlet(np.full(6, 0.8), 2)
PAIRS = {
    "close": (np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])),
    "far": (np.array([0.5, 0.4, 0.09, 0.01]), np.array([0.05, 0.55, 0.1, 0.3])),
    "zeros": (np.array([0.6, 0.4, 0.0, 0.0]), np.array([0.0, 0.3, 0.5, 0.2])),
    "equal": (np.array([0.5, 0.3, 0.2]), np.array([0.5, 0.3, 0.2])),
    "random": (RANDOM[0], RANDOM[1]),
}


@dataclass(frozen=True)
class Races:
    """All pairs of winners (argmax a/E, argmax b/E) of vectors [V], E i.i.d. Exp(1).

    For both to be z, every other E must exceed E(z) times a ratio. For x and y all that matters is
    t = E(y) / E(x), from a(y)/a(x) to b(y)/b(x): with S(t) the sum of what every E must exceed,
    E(x) being 1, the probability is the integral of S(t)^-2, and S is linear between corners.
    """

    a: Vector
    b: Vector

    def __iter__(self) -> Iterator[tuple[float, int, int, Vector]]:
        """P(x and y win), x, y, and an E where they do."""
        for x, y in product(np.flatnonzero(self.a).tolist(), np.flatnonzero(self.b).tolist()):
            if x == y:
                exponentials = 2 * self._least(x, x, 1.0)
                exponentials[x] = 1.0
                yield 1 / float(self._least(x, x, 1.0).sum()), x, x, exponentials
                continue
            first, last = self.a[y] / self.a[x], np.inf
            if self.b[x]:
                last = self.b[y] / self.b[x]
            if first < last:
                t = float(first + min(last, first + 1)) / 2
                exponentials = 2 * self._least(x, y, t)
                exponentials[[x, y]] = 1.0, t
                yield self._mass(x, y, float(first), float(last)), x, y, exponentials

    def _mass(self, x: int, y: int, first: float, last: float) -> float:
        a, b = self.a, self.b
        corners = [float(a[z] / a[x] * b[y] / b[z]) for z in np.flatnonzero(b) if z not in (x, y)]
        ends = [first, *sorted(each for each in corners if first < each < last), last]
        mass = 0.0
        for start, end in pairwise(ends):
            from_start = self._sum(x, y, start)
            if end < np.inf:
                mass += (end - start) / (from_start * self._sum(x, y, end))
            else:
                mass += 1 / (from_start * (self._sum(x, y, start + 1) - from_start))
        return mass

    def _sum(self, x: int, y: int, t: float) -> float:
        return 1 + t + float(np.delete(self._least(x, y, t), (x, y)).sum())

    def _least(self, x: int, y: int, t: float) -> Vector:
        """What every E must exceed where E(x) is 1 and E(y) is `t`."""
        least: Vector = np.maximum(self.a / self.a[x], t * self.b / self.b[y])
        return least


@pytest.mark.parametrize("pair", PAIRS)
def test_the_races_are_all_there_are(pair: str) -> None:
    a, b = PAIRS[pair]
    joint = np.zeros((a.size, a.size))
    for mass, x, y, exponentials in Races(a, b):
        joint[x, y] += mass
        assert ((a / exponentials).argmax(), (b / exponentials).argmax()) == (x, y)
    np.testing.assert_allclose(joint.sum(1), a, rtol=0, atol=1e-12)
    np.testing.assert_allclose(joint.sum(0), b, rtol=0, atol=1e-12)
    agreement = expected_acceptance_coupled(Distribution.from_dense(a), Distribution.from_dense(b))
    assert np.trace(joint) == pytest.approx(agreement, abs=1e-12)


class ScriptedRace(Noise):
    """Noise whose exponentials and test of a draft are chosen."""

    __slots__ = ("accept", "race")

    def __init__(self) -> None:
        super().__init__(0)
        self.race, self.accept = np.ones(1), 0.0

    def exponentials(
        self, step: int, vocabulary: int, ids: NDArray[np.int64] | None = None
    ) -> Vector:
        return self.race if ids is None else self.race[ids]

    def uniform(self, purpose: Purpose, side: Side | None, step: int) -> float:
        assert purpose is Purpose.ACCEPT
        return self.accept


def decided(
    rule: SpeculativeRule, noise: ScriptedRace, q: Vector, p: Vector, raced: Vector
) -> Vector:
    """The exact law of the token that a rule decides; beside the draft's it races `raced`."""
    law = np.zeros(q.size)
    sent = Distribution.from_dense(q)
    for mass, x, _, noise.race in Races(q, raced):
        assert rule.draft(0, sent) == x
        ratio = token_acceptance(p[x], q[x])
        for noise.accept, share in ((ratio / 2, ratio), ((1 + ratio) / 2, 1 - ratio)):
            verdict = rule.verify(0, [x], [sent], [p, p])
            law[x if verdict.accepted else verdict.token] += mass * share
    return law


@pytest.mark.parametrize("pair", PAIRS)
def test_accepting_what_equals_the_target_is_exact(pair: str) -> None:
    q, p = PAIRS[pair]
    noise = ScriptedRace()
    law = decided(speculative_rule("coupled", noise, Sampler()), noise, q, p, raced=p)
    np.testing.assert_allclose(law, p, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["rejection", "sample-quantize"])
def test_rules_that_accept_by_the_ratio_draft_from_noise_of_their_own(name: str) -> None:
    class Unshared(Noise):
        __slots__ = ()

        def exponentials(
            self, step: int, vocabulary: int, ids: NDArray[np.int64] | None = None
        ) -> Vector:
            raise AssertionError("the race of this step may decide the token after a block only")

    noise = Unshared(1)
    rule = speculative_rule(name, noise, Sampler())
    q, p = PAIRS["far"]
    sent = Distribution.from_dense(q)
    for step in range(50):
        x = rule.draft(step, sent)
        only = np.eye(q.size)[0]  # a certain token behind the block needs no noise
        rule.verify(step, [x], [sent], [p, only])
