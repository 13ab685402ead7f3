"""`scheduling`: acceptance sequences as recorded and as replayed, and what the points say."""

from pathlib import Path

import pytest

from scripts.papers.dragon.scheduling import SCHEDULERS, TOKENS, SchedulingCase, measure, recorded
from scripts.papers.sample_sides import LoadedSide
from scripts.papers.virtual_arena import Acceptances


@pytest.mark.slow
def test_sequences_are_recorded_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, model = tmp_path / "acceptances.csv", "dragon-small"
    seen: list[tuple[int, int]] = []
    sequences = recorded(model, (3, 4), 12, kept, lambda *now: seen.append(now))
    assert seen == [(1, 2), (2, 2)]
    assert all(len(each.device) == len(each.cloud) == 12 for each in sequences)
    assert sequences[0] != sequences[1]
    again = recorded(model, (3,), 12, tmp_path / "other.csv", lambda *now: None)
    assert again == sequences[:1]

    def nothing(model: str) -> None:
        raise AssertionError("what is kept needs no recording")

    monkeypatch.setattr(LoadedSide, "both", nothing)
    assert recorded(model, (4, 3), 12, kept, lambda *now: None) == sequences[::-1]
    for missing, tokens in ((5, 12), (3, 13)):
        with pytest.raises(AssertionError):
            recorded(model, (missing,), tokens, kept, lambda *now: None)


@pytest.mark.slow
def test_a_slow_device_is_the_floor_and_a_switching_scheduler_beats_fixed_ones() -> None:
    stretches = Acceptances(
        (True,) * 40 + (True, False) * 20 + (True,) * 20, (True, False) * 20 + (True,) * 60
    )
    (floor,) = measure(SchedulingCase(120, 30, 0, "device", 1, stretches))
    assert floor["seconds"] == pytest.approx(TOKENS * 0.12, rel=0.02)
    seconds = {
        row["scheduler"]: row["seconds"]
        for name in SCHEDULERS
        for row in measure(SchedulingCase(30, 30, 300, name, 1, stretches))
    }
    assert seconds["leaderless"] < seconds["greedy"] < min(seconds["device"], seconds["cloud"])
    assert seconds["leaderless"] > TOKENS * 0.03
