"""`scheduling`: acceptance sequences as recorded and as replayed, and what the points say."""

from functools import partial
from pathlib import Path

import pytest

from scripts.papers.acceptances import Acceptances
from scripts.papers.dragon import recorded_acceptance
from scripts.papers.dragon.scheduling import SCHEDULERS, TOKENS, SchedulingCase, measure


@pytest.mark.slow
def test_sequences_are_recorded_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, heard = tmp_path / "acceptances.csv", list[int]()
    recorded = partial(recorded_acceptance.recorded, "dragon-small")
    sequences = recorded((3, 4), 12, kept, heard.append)
    assert heard == [1, 2]
    assert all(len(each.device) == len(each.cloud) == 12 for each in sequences)
    assert sequences[0] != sequences[1]
    again = recorded((3,), 12, tmp_path / "other.csv", heard.append)
    assert again == sequences[:1]

    def nothing(*_: object) -> dict[int, Acceptances]:
        raise AssertionError("what is kept needs no recording")

    monkeypatch.setattr(recorded_acceptance, "_record", nothing)
    assert recorded((4, 3), 12, kept, heard.append) == sequences[::-1]
    for missing, tokens in ((5, 12), (3, 13)):
        with pytest.raises(AssertionError, match="no recording"):
            recorded((missing,), tokens, kept, heard.append)
    kept.write_text("source,sequence\n1,2\n")
    with pytest.raises(AssertionError, match="no recording"):
        recorded((3,), 12, kept, heard.append)


@pytest.mark.slow
def test_a_slow_device_is_the_floor_and_a_switching_scheduler_beats_fixed_ones() -> None:
    stretches = Acceptances(
        (True,) * 40 + (True, False) * 20 + (True,) * 20, (True, False) * 20 + (True,) * 60
    )
    floor = measure(SchedulingCase(120, 30, 0, "device", 1, stretches))
    assert floor["seconds"] == pytest.approx(TOKENS * 0.12, rel=0.02)
    seconds = {
        name: measure(SchedulingCase(30, 30, 300, name, 1, stretches))["seconds"]
        for name in SCHEDULERS
    }
    assert seconds["leaderless"] < seconds["greedy"] < min(seconds["device"], seconds["cloud"])
    assert seconds["leaderless"] > TOKENS * 0.03
