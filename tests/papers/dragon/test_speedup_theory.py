"""`speedup-theory`: Theorem 6.2's numbers, and the runtime's own beside them."""

import pytest

from scripts.lab.arena import Pace
from scripts.papers.dragon.speedup_theory import eq7, theorem


@pytest.mark.parametrize(
    ("acceptance", "pace", "expected"),
    [
        (0.5, Pace(0.01, 0.01, 0.1), 1 / (1 - 0.5 / 1.1)),
        (0.99, Pace(0.005, 0.01, 0.3), 23.85),
        (0.5, Pace(0.05, 0.03, 0.1), 1 / (1 - (1 - 5 / 13) * 0.5)),
        (0.99, Pace(0.2, 0.03, 0.1), 1.0),
    ],
)
def test_the_theorem_and_eq7_agree(acceptance: float, pace: Pace, expected: float) -> None:
    assert theorem(acceptance, pace) == pytest.approx(expected, rel=1e-3)
    assert eq7(0.0, pace) / eq7(acceptance, pace) == pytest.approx(expected, rel=1e-3)
