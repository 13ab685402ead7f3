"""When a block ends."""

import math

import numpy as np
import pytest

from dragonrt.distributions import Distribution, entropy
from dragonrt.sampling.stopping import (
    TARGET_RATE,
    AdaEDL,
    DraftSignals,
    SpecDecPlusPlus,
    StoppingRule,
)
from scripts.papers.theory import acceptance_probability


def length(rule: StoppingRule, tokens: list[DraftSignals]) -> int:
    """How many of the tokens are drafted before the rule stops."""
    return next(n for n in range(1, len(tokens) + 1) if rule.stop(tokens[:n]))


def test_specdec_stops_when_a_rejection_is_likely() -> None:
    rule = SpecDecPlusPlus(longest=8, threshold=0.7)
    # 1 - 0.75^4 = 0.684, 1 - 0.75^5 = 0.763.
    assert length(rule, [DraftSignals(0.0, 0.75)] * 9) == 5
    assert length(rule, [DraftSignals(0.0, 1.0)] * 9) == 8
    assert (
        length(rule, [DraftSignals(0.0, 1.0), DraftSignals(0.0, 0.2), DraftSignals(0.0, 1.0)]) == 2
    )
    assert rule.after(5, 1) is rule


class TestAdaEDL:
    def test_the_newest_token_decides(self) -> None:
        rule = AdaEDL(longest=6, threshold=0.5, gamma=0.2)
        # 1 - √(0.2 H) < 0.5 where H > 1.25.
        assert (
            length(
                rule, [DraftSignals(1.24), DraftSignals(0.1), DraftSignals(1.26), DraftSignals(0.0)]
            )
            == 3
        )
        assert length(rule, [DraftSignals(0.0)] * 9) == 6
        assert not rule.stop([DraftSignals(-1e-17)]), "an entropy of zero may be rounded below it"

    def test_the_threshold_follows_the_acceptance_rate(self) -> None:
        rule = AdaEDL(longest=6)
        refused = rule.after(4, 0)
        assert refused.rate == 0.5
        assert refused.threshold == pytest.approx(0.5 + 0.1 * 0.01)
        assert rule.after(4, 4).threshold == pytest.approx(0.5 - 0.1 * 0.01)
        assert refused.after(4, 4).rate == 0.75
        assert rule.after(2, 1).rate == 0.75
        at_target = AdaEDL(longest=12, rate=TARGET_RATE).after(10, 9)
        assert (at_target.rate, at_target.threshold > 0.5) == (TARGET_RATE, True)
        assert rule == AdaEDL(longest=6), "a rule is a value"

    def test_tokens_behind_a_refused_one_do_not_count(self) -> None:
        rule = AdaEDL(longest=6)
        assert rule.after(6, 2) == rule.after(3, 2)

    def test_the_bound_where_it_is_one(self) -> None:
        """Where the target is one of the tokens that q holds for likely, acceptance is above it."""
        rng = np.random.default_rng(2)
        for _ in range(100):
            q = rng.dirichlet(np.full(10, 0.3))
            p = Distribution(np.array([int(q.argmax())]), np.ones(1), 0.0, 10)
            drafted = Distribution.from_dense(q)
            bound = 1 - math.sqrt(0.5 * entropy(drafted))
            assert acceptance_probability(p, drafted) >= bound
            rule = AdaEDL(longest=99, threshold=bound + 1e-9, gamma=0.5)
            assert rule.stop([DraftSignals(entropy(drafted))])
