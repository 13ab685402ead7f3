"""`speedup-theory`: Theorem 6.2's numbers, and the runtime's own beside them."""

import pytest

from scripts.papers.dragon.speedup_theory import SpeedupCase, eq7, measure, theorem
from scripts.papers.virtual_arena import Pace


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


@pytest.mark.slow
@pytest.mark.parametrize(("device_ms", "acceptance"), [(10, 0.95), (50, 0.5), (150, 0.95)])
def test_the_runtime_is_on_the_curve(device_ms: int, acceptance: float) -> None:
    (row,) = measure(SpeedupCase((0.0, acceptance), Pace(device_ms / 1e3, 0.03, 0.1), 80, 1))
    assert row["speedup"] == pytest.approx(row["theorem"], rel=0.05)


@pytest.mark.slow
def test_a_device_that_drafts_ahead_beats_the_curve_in_the_middle_regime() -> None:
    (row,) = measure(SpeedupCase((0.85, 0.5), Pace(0.05, 0.03, 0.3), 100, 1))
    assert row["speedup"] > 1.02 * row["theorem"]
