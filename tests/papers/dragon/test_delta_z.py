"""What handing over saves: the scheduler's formula, and the runtime beside it (DRAGON Fig. 3)."""

import pytest

from scripts.papers.dragon.delta_z import HandOverCase, expected_ms, measure


def test_the_curves_are_those_of_eq_8() -> None:
    rates = (0.4, 0.8)
    assert expected_ms(rates, 300.0) == pytest.approx((0.4 - 1) * 100)
    assert expected_ms(rates, 60.0) == pytest.approx((0.4 - 0.8) * 100)
    assert expected_ms((0.8, 0.4), 0.0) > 0 > expected_ms((0.8, 0.4), 160.0)


def test_the_runtime_saves_what_the_formula_says_where_the_device_is_the_slow_side() -> None:
    rows = [row for each in range(3) for row in measure(HandOverCase((0.8, 0.4), 200.0, each, 60))]
    found = sum(row["measured_ms"] for row in rows) / 3
    assert found == pytest.approx(rows[0]["expected_ms"], abs=6)
