"""What one forward gives of drafts."""

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Step, codec
from dragonrt.modes.drafting import DraftMaker
from dragonrt.modes.mode import Span
from dragonrt.modes.prefix import TokenPrefix, extended
from dragonrt.sampling.aggregation import rule
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import SimulatedSaid

V = 8


def sure_of(token: int) -> SimulatedSaid:
    p: NDArray[np.float32] = np.full(V, 0.01, np.float32)
    p[token] = 1.0
    return SimulatedSaid(p, 0.0, np.zeros(1, np.float32))


def test_drafts_end_where_a_guess_is_wrong() -> None:
    """What is behind it was read after another text than the side drafts along."""
    maker = DraftMaker("device", rule("coupled", Noise(1), Sampler(0.0)), codec("topp:0.8", V), 0)
    line = TokenPrefix(7, [1, 2])
    span, guess = Span.of(line, 1, 2), [3, 4, 5]
    for said, right in (([2, 3, 4, 5, 6], 3), ([2, 3, 6, 5, 6], 1), ([2, 6, 4, 5, 6], 0)):
        made = maker.drafts(
            span, guess, (), [sure_of(token) for token in said], lambda step, p: Step(step), ()
        )
        kept = [(draft.step, draft.prefix_hash, draft.token) for draft in made.drafts]
        hashes = extended(line.hashes, guess)
        assert kept == [(n, hashes[n], said[n - 1]) for n in range(1, 3 + right)]
        assert made.guessed == 3


def test_drafts_on_branches_come_behind_the_guess_and_may_be_fewer() -> None:
    maker = DraftMaker("cloud", rule("coupled", Noise(1), Sampler(0.0)), codec("topp:0.8", V), 0)
    line = TokenPrefix(7, [1])
    branches = [Span.of(TokenPrefix(7, [other]), 1, 1) for other in (5, 6)]
    said = [sure_of(token) for token in (2, 3, 4)]
    span = Span.of(line, 1, 1)
    made = maker.drafts(span, [2], branches, said, lambda step, p: Step(step), ())
    assert [draft.token for draft in made.drafts] == [2, 3]
    ((beside,)) = made.branches
    assert (beside.step, beside.prefix_hash, beside.token) == (1, branches[0].hashes[-1], 4)
