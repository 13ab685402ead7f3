"""`speedup-theory`: Theorem 6.2's numbers, and the runtime's own beside them."""

from pathlib import Path

import pytest

from scripts.papers.dragon import speedup_theory
from scripts.papers.dragon.speedup_theory import SpeedupCase, eq7, measure, summarise, theorem
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
    row = measure(SpeedupCase((0.0, acceptance), Pace(device_ms / 1e3, 0.03, 0.1), 80, 1))
    assert row["speedup"] == pytest.approx(row["theorem"], rel=0.05)


@pytest.mark.slow
def test_a_device_that_drafts_ahead_beats_the_curve_in_the_middle_regime() -> None:
    row = measure(SpeedupCase((0.85, 0.5), Pace(0.05, 0.03, 0.3), 100, 1))
    assert row["speedup"] > 1.02 * row["theorem"]


@pytest.mark.slow
def test_algorithm1_follows_eq7_at_comparable_delays() -> None:
    row = measure(SpeedupCase(None, Pace(0.05, 0.05, 0.15), 100, 1))
    assert row["ms_per_token"] == pytest.approx(row["eq7_ms_per_token"], rel=0.1)
    assert 0.3 < row["acceptance"] < 0.8


def test_summary_and_picture_come_from_the_rows(tmp_path: Path) -> None:
    rows = [
        {
            "rule": "replayed" if own is not None else "algorithm1",
            "device_ms": device_ms,
            "cloud_ms": 30,
            "rtt_ms": 100,
            "device_acceptance": own,
            "acceptance": acceptance,
            "sample": 0,
            "ms_per_token": 99.0,
            "eq7_ms_per_token": 100.0,
            "speedup": 1.5,
            "theorem": 1.25,
        }
        for acceptance in (0.5, 0.9)
        for device_ms in (10, 60, 140)
        for own in (0.0, 0.85, None)
    ]
    summary = summarise(rows)
    assert len(summary["speedup_over_theorem"]) == 6
    assert summary["speedup_over_theorem"]["c_l <= c_r, device's drafts refused"] == {
        "points": 2,
        "lowest": 1.2,
        "median": 1.2,
        "highest": 1.2,
    }
    assert summary["algorithm1_over_eq7"]["highest"] == 0.99
    speedup_theory.plot(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
