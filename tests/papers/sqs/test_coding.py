"""K-SQS and C-SQS over temperature: what is measured of one text, and what is said of it."""

from pathlib import Path

import pytest

from dragonrt.backends.prompt import Prompt
from scripts.papers.intervals import Row
from scripts.papers.model_sides import PromptCase
from scripts.papers.sqs import coding as sqs
from scripts.papers.sqs.coding import SqsCoding


def test_a_coding_names_its_codec_and_what_it_is_called_in_the_figures() -> None:
    assert SqsCoding(k=8).codec == "ksqs:8:100"
    assert SqsCoding(beta=0.01, eta=0.001).codec == "csqs:0.01:100"
    assert SqsCoding(beta=0.01, eta=0.001).method == "C-SQS"
    assert SqsCoding(beta=0.01).method == "C-SQS, η = 0"


@pytest.mark.slow
def test_batches_keep_to_the_budget_and_thresholds_adapt() -> None:
    codings = (SqsCoding(k=128), SqsCoding(beta=0.05, eta=0.1), SqsCoding(beta=0.05))
    case = PromptCase(0, ("dragon-draft", "dragon-small"), Prompt("prose", (40, 41, 42)), 3)
    rows = sqs._measure(codings, 8, (case, 1.0))
    alone, dense, adaptive, fixed = rows
    assert alone["latency_s"] == pytest.approx(7 * 0.05)
    assert dense["tokens_per_call"] == 8 / dense["batches"]
    # K = 128 of 8192 at ℓ = 100 takes 1117 bits and at most 7 of a rank: four fit in 5000.
    assert dense["drafted_per_batch"] <= 4
    assert dense["resampling_rate"] == dense["resampled"] / dense["batches"]
    assert adaptive["bits_per_token"] != fixed["bits_per_token"]


def rows() -> list[Row]:
    latencies = {("K-SQS", "K = 8"): (1.0, 4.0), ("C-SQS", "β = 0.01"): (2.0, 3.0)}
    latencies |= {("K-SQS", "K = 32"): (9.0, 9.0), ("C-SQS, η = 0", "β = 0.01"): (3.0, 4.0)}
    latencies |= {(sqs.CLOUD, ""): (0.5, 0.5)}
    return [
        {
            "method": method,
            "parameter": parameter,
            "temperature": heat,
            "text": text,
            "latency_s": seconds[int(heat)] + text,
            "resampling_rate": None if method == sqs.CLOUD else seconds[int(heat)] / 10,
            "drafted_per_batch": 4.0,
            "bits_per_token": 100.0,
            "tokens_per_call": 2.0,
        }
        for (method, parameter), seconds in latencies.items()
        for heat in (0.0, 1.0)
        for text in (0, 1)
    ]


@pytest.mark.slow
def test_the_summary_finds_the_crossover_and_the_picture_is_drawn(tmp_path: Path) -> None:
    summary = sqs.summarise(rows())
    crossover = summary["crossover"]
    assert (crossover["K-SQS"], crossover["C-SQS"]) == ("K = 8", "β = 0.01")
    assert crossover["0.0"]["lower latency_s"] == "K-SQS"
    assert crossover["1.0"]["lower latency_s"] == "C-SQS"
    assert crossover["1.0"]["lower resampling_rate"] == "C-SQS"
    assert summary["C-SQS, η = 0, β = 0.01"]["1.0"]["latency_s"]["mean"] == 4.5
    assert "resampling_rate" not in summary[sqs.CLOUD]["1.0"]
    sqs.plot(rows(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
