"""Every figure, as small as it can be: it measures, sums up and draws, and draws again."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.papers import charts, figures, framework, teacher_forced
from scripts.papers.dragon import attacks, disclosure
from scripts.papers.framework import Settings, draw_again, files, run_experiment

SMALL: dict[str, dict[str, Any]] = {
    "latency": {"TOKENS": 2, "ROUND_TRIPS_MS": (0, 300), "TEMPERATURES": (0.0,)},
    "ttft": {"DOCUMENTS": (2,), "ROUND_TRIPS_QUICK_MS": (300,)},
    "perplexity": {"QUICK_WINDOWS": 1, "QUICK_COUNTS": (1,), "QUICK_CHUNKS": 20},
    "scheduling": {
        "EXTRA_MS_QUICK": (0,),
        "SPEEDS_MS": ((30, 30),),
        "QUICK_SEQUENCES": 1,
        "TOKENS": 12,
    },
    "delta-z": {"TOKENS_QUICK": 10},
    "speedup-theory": {
        "LINKS_MS": ((10, 100),),
        "DEVICE_MS_QUICK": (10, 150),
        "ACCEPTANCES": (0.5,),
    },
    "pipeline": {"TOKENS_QUICK": 6},
    "acceptance": {"POSITIONS_QUICK": 4, "DRAWS_QUICK": 2},
    "gamma": {"GAMMAS": (0.0, 1.0), "SEQUENCES": 1, "QUESTIONS_QUICK": 1},
    "wire": {"SYNTHETIC": (5000,)},
    "sqs": {"TOKENS_QUICK": 4, "TEMPERATURES_QUICK": (1.0,)},
    "sqs-bound": {"TOKENS_QUICK": 4, "TEMPERATURES_QUICK": (0.2, 1.0), "TEXTS": 1, "LENGTH": 3},
    "qs-quality": {"TOKENS": 3, "TEMPERATURES_QUICK": (1.0,), "QUESTIONS_QUICK": 1},
    "qs-throughput": {"TOKENS_QUICK": 4, "TEMPERATURES_QUICK": (0.8,)},
    "uplink": {
        "TOKENS_QUICK": 4,
        "RATES_QUICK": (100e3,),
        "CODECS": ("ids", "ksqs:16:100", "csqs:0.01:100", "dense:fp16"),
        "SQS": ("ksqs:16:100", "csqs:0.01:100"),
    },
    "specfed-uploads": {"TEMPERATURES": (0.7,), "KS": (4, 64), "TOKENS_QUICK": 2, "TEXTS_QUICK": 2},
    "specfed-throughput": {"TOKENS_QUICK": 2, "RATES_QUICK": (1e6,), "LENGTHS": (4, 0)},
    "sprinter-roc": {"SAMPLES_QUICK": 400, "RATIOS": (1.2,)},
    "sprinter-theory": {"BATCHES_QUICK": 2, "TOKENS": 20, "RUNS": 5, "RUN_TP": (0.5, 1.0)},
    "sprinter-latency": {"TOKENS": 4, "TEMPERATURES": (0.0,), "LINKS": ("100ms",)},
    "disclosure": {"QUICK": disclosure.Size(2, (8.0,))},
    "attacks": {"QUICK": attacks.Size(3, 2, 2, 2, 2), "DOCUMENTS": 4, "TICKS": 20},
}
"""Constants of a figure's module that make it small."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.NAME for each in figures.EXPERIMENTS])
def test_a_figure_measures_sums_up_and_draws(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment: Any = figures.experiment(name)
    for constant, value in SMALL.get(name, {}).items():
        monkeypatch.setattr(experiment, constant, value)
    positions = teacher_forced.positions
    monkeypatch.setattr(teacher_forced, "positions", lambda model, *_: positions(model, 2, 3, 0))
    monkeypatch.setattr(charts, "DOTS_PER_INCH", 50)
    monkeypatch.setattr(framework, "FEW", 10**6)  # no processes: they would not be as small
    where = files(experiment, tmp_path)
    real = experiment.CLOCKS == ("real",)
    models = framework.TOYS[: 1 + (name in figures.FEDERATED)]
    settings = Settings(True, real, 1, 0, where.directory, models)
    seen: list[tuple[int, int]] = []
    by_model = name in figures.BY_MODEL
    run_experiment(experiment, settings, lambda *now: seen.append(now), by_model=by_model)
    assert seen
    assert all(done <= total for done, total in seen)
    record = json.loads(where.record.read_text(encoding="utf-8"))
    assert record["rows"] > 0
    assert "NaN" not in json.dumps(record["summary"])
    pictures = {path: path.stat().st_size for path in where.pictures}
    assert pictures
    assert min(pictures.values()) > 5_000, "more than empty axes"
    draw_again(experiment, where)
    assert json.loads(where.record.read_text(encoding="utf-8")) == record
    assert {path: path.stat().st_size for path in where.pictures} == pictures
