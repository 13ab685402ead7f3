"""`scripts/train/run verifier`: files that a verifier is loaded from, and mistakes in one line."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dragonrt import bundled
from dragonrt.control.verifier import Verifier

Run = Callable[..., Any]


@pytest.fixture
def call(run: Run) -> Run:
    return partial(run, script="train")


DOCUMENTS = str(bundled.documents("cloud"))


@pytest.mark.slow
def test_it_trains_and_says_how_well(call: Run, tmp_path: Path) -> None:
    outcome = call(
        *("verifier", "--draft", "dragon-draft", "--target", "dragon-opt"),
        *("--corpus", DOCUMENTS, "--samples", "400", "--lambda", "1.5"),
    )
    assert outcome.code == 0
    assert "260 parameters (hidden+confidence), 280 samples" in outcome.output
    assert "q(x)/p(x) ≤ 1.5: AUC 0." in outcome.output
    (file,) = tmp_path.glob("data/dragonrt/verifiers/dragon-draft--dragon-opt--sprinter.json")
    made = Verifier.load(file)
    assert (made.kind, made.ratio, made.threshold) == ("sprinter", 1.5, 0.5)
    assert made.pair.target == "dragon-opt"
    assert made.trained_on["test"]["samples"] == 80
    pair = (made.pair.draft_fingerprint, made.pair.target_fingerprint)
    found = Verifier.for_pair(*pair, "sprinter")
    assert found.trained_on == made.trained_on, "a sprinter finds it by its models"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--samples", "10"), "10 samples are too few: take 400"),
        (("--lambda", "0"), "lambda 0.0 must be a finite number above 0"),
        (("--threshold", "1"), "threshold 1.0 must lie between 0 and 1"),
    ],
)
def test_a_mistake_is_one_line(call: Run, arguments: tuple[str, ...], line: str) -> None:
    outcome = call("verifier", "--corpus", DOCUMENTS, "--out", "made", *arguments)
    assert (outcome.code, outcome.line) == (1, line)


def test_a_corpus_that_is_not_there_is_one_line(call: Run) -> None:
    outcome = call("verifier", "--corpus", "none", "--out", "made")
    assert (outcome.code, outcome.line) == (1, "there is no file or directory none")
