"""What handing over saves: the scheduler's formula, and the runtime beside it (DRAGON Fig. 3)."""

from pathlib import Path

import pytest

from scripts.papers.dragon import delta_z
from scripts.papers.dragon.delta_z import HandOverCase, expected_ms, measure


def test_the_curves_are_those_of_eq_8() -> None:
    rates = (0.4, 0.8)
    assert expected_ms(rates, 300.0) == pytest.approx((0.4 - 1) * 100)
    assert expected_ms(rates, 60.0) == pytest.approx((0.4 - 0.8) * 100)
    assert expected_ms((0.8, 0.4), 0.0) > 0 > expected_ms((0.8, 0.4), 160.0)


def test_the_runtime_saves_what_the_formula_says_where_the_device_is_the_slow_side() -> None:
    rows = [measure(HandOverCase((0.8, 0.4), 200.0, 60, sample)) for sample in range(3)]
    found = sum(row["measured_ms"] for row in rows) / 3
    assert found == pytest.approx(rows[0]["expected_ms"], abs=6)


def test_summary_and_picture_come_from_the_rows(tmp_path: Path) -> None:
    rows = [delta_z._row((0.4, 0.8), ms, None, None) for ms in (0.0, 100.0)]
    rows += [delta_z._row((0.4, 0.8), 100.0, sample, -40.0 - sample) for sample in (0, 1)]
    rows += [delta_z._row((0.4, 0.8), 200.0, 0, 5.0)]
    summary = delta_z.summarise(rows)
    assert (summary["points"], summary["same_side"]) == (2, 1)
    point = summary["acceptance 0.4/0.8, device 100 ms"]
    assert point["measured_ms"]["mean"] == -40.5
    assert point["expected_ms"] == pytest.approx(-48)
    delta_z.plot(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
