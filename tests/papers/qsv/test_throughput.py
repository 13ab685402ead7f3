"""Control over a Markov uplink: one answer in every way, and what is said of many."""

from pathlib import Path

import pytest

from dragonrt.control.policies import Action
from scripts.papers.intervals import Row
from scripts.papers.qsv import throughput as experiment

PAIR = ("dragon-draft", "dragon-small")


@pytest.mark.slow
def test_one_answer_is_measured_in_every_way() -> None:
    case = experiment.RuntimeCase(experiment.Texts(PAIR, None, 6, 0.8), 3, Action(2, 10))
    rows = experiment._answer(case)
    ways = [row["way"] for row in rows]
    drafting = [experiment.S_Q, experiment.STATIC, experiment.HEURISTIC, experiment.LEARNED]
    assert ways == [experiment.CLOUD, *drafting]
    alone = rows.pop(0)
    assert (alone["tokens"], alone["calls"]) == (6, 6)
    assert alone["seconds"] >= 5 * 0.05
    for row in rows:
        assert row["calls"] <= 6
        assert row["tokens"] == 6
        assert row["seconds"] > 6 * 0.01
        assert row["bytes"] > row["bits"] / 8 > 0
    assert [row["length"] for row in rows] == [2, 2, None, None]


@pytest.mark.slow
def test_recorded_texts_name_the_best_fixed_action() -> None:
    case = experiment.RecordedCase(experiment.Texts(PAIR, None, 4, 0.8), range(3, 5))
    rows = experiment._record(case)
    assert [row["way"] for row in rows[:2]] == [experiment.CLOUD, experiment.STATIC]
    assert experiment.throughput(rows[:1]).value == 20
    assert len(rows) == 1 + 3 * experiment.EPISODES
    fixed = [row for row in rows if row["way"] == experiment.STATIC]
    assert len({(row["length"], row["resolution"]) for row in fixed}) == 1


def rows() -> list[Row]:
    speeds = {
        experiment.CLOUD: 20.0,
        experiment.STATIC: 25.0,
        experiment.HEURISTIC: 22.0,
        experiment.LEARNED: 26.0,
    }
    return [
        {
            "source": source,
            "temperature": heat,
            "way": way,
            "episode": episode,
            "length": 2,
            "resolution": 3,
            "tokens": 100,
            "seconds": 100 / speed + episode,
            "calls": 40,
            "bits": None,
            "bytes": None,
        }
        for source in (experiment.RECORDED, experiment.RUNTIME)
        for heat in (0.0, 1.0)
        for way, speed in speeds.items()
        for episode in (0, 1)
    ]


@pytest.mark.slow
def test_the_summary_counts_the_orderings_and_the_picture_is_drawn(tmp_path: Path) -> None:
    summary = experiment.summarise(rows())[experiment.RECORDED]
    assert summary["temperatures"] == 2
    assert summary["ddqn_at_least_best_static"] == 2
    assert summary["heuristic_below_best_static"] == 2
    learned = summary["1.0"][experiment.LEARNED]
    assert learned["tokens_per_s"] == pytest.approx(200 / (200 / 26 + 1), abs=1e-3)
    assert summary["all"][experiment.LEARNED]["tokens_per_call"] == 2.5
    assert learned["low"] < learned["tokens_per_s"] < learned["high"]
    over = summary["ddqn_over_static"]
    assert over["mean"] == pytest.approx(400 / (400 / 26 + 2) - 400 / (400 / 25 + 2), abs=1e-3)
    assert 0 < over["low"] < over["mean"] < over["high"]
    experiment.plot(rows(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
