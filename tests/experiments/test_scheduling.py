"""`scheduling`: acceptance sequences are replayed as they are, and what the points say."""

from pathlib import Path

import pytest

from dragonrt.experiments import scheduling
from dragonrt.experiments.paced_pair import Pace, replay_acceptances
from dragonrt.experiments.scheduling import SCHEDULERS, TOKENS, Case, acceptance_sequence, measure
from dragonrt.runtime.scheduler import Placement
from dragonrt.simulation.drafter import Acceptances


@pytest.mark.slow
@pytest.mark.parametrize("placement", SCHEDULERS.values())
def test_the_runtime_accepts_what_the_sequence_says(placement: Placement) -> None:
    acceptances = Acceptances(
        (True, False, False, True, True, False) * 4, (True, True, False, False, True, True) * 4
    )
    answer = replay_acceptances(acceptances, placement, Pace(0.02, 0.03, 0.1), 16)
    counts = answer.counts
    assert counts.own_accepted <= sum(acceptances.device)
    if counts.own_compared == 24:
        assert counts.own_accepted == sum(acceptances.device)
        assert counts.other_accepted == sum(acceptances.cloud)
    assert counts.other_compared > 0
    assert len(answer.tokens) == 24


def test_sequences_are_seeded_and_have_stretches() -> None:
    assert acceptance_sequence(3) == acceptance_sequence(3) != acceptance_sequence(4)
    sequences = [acceptance_sequence(seed) for seed in range(50)]
    assert all(len(s.device) == len(s.cloud) == TOKENS for s in sequences)
    shares = [sum(s.device) / TOKENS for s in sequences]
    assert 0.65 < sum(shares) / len(shares) < 0.8
    assert max(shares) - min(shares) > 0.2


@pytest.mark.slow
def test_a_slow_device_is_the_floor_and_a_switching_scheduler_beats_fixed_ones() -> None:
    floor = measure(Case(120, 30, 0, "device", 1))
    assert floor["seconds"] == pytest.approx(TOKENS * 0.12, rel=0.02)
    seconds = {name: measure(Case(30, 30, 300, name, 1))["seconds"] for name in SCHEDULERS}
    assert seconds["leaderless"] < seconds["greedy"] < min(seconds["device"], seconds["cloud"])
    assert seconds["leaderless"] > TOKENS * 0.03


def test_summary_and_picture_come_from_the_rows(tmp_path: Path) -> None:
    rows = [
        {
            "device_ms": device_ms,
            "cloud_ms": 30,
            "extra_ms": extra_ms,
            "scheduler": name,
            "sequence": sequence,
            "device_acceptance": 0.5,
            "cloud_acceptance": 0.75,
            "switches": 0,
            "seconds": 10.0 + number + extra_ms / 100,
        }
        for device_ms in (30, 60)
        for extra_ms in (0, 100)
        for number, name in enumerate(SCHEDULERS)
        for sequence in range(3)
    ]
    summary = scheduling.summarise(rows)
    assert (summary["sequences"], summary["acceptance"]["cloud"]) == (3, 0.75)
    point = summary["points"]["device 60 ms, cloud 30 ms, extra 100 ms"]
    assert point["seconds"]["cloud"]["median"] == 11.0
    assert point["greedy_over_best_fixed"] == round(14 / 11, 4)
    scheduling.plot(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
