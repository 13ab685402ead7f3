"""`scripts/train/run verifier`: files that a verifier is loaded from, and mistakes in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonrt import bundled
from dragonrt.control.trained import Verifier


@pytest.mark.slow
def test_it_trains_and_says_how_well(run: Callable[..., Any], tmp_path: Path) -> None:
    outcome = run(
        *("verifier", "--draft", "dragon-draft", "--target", "dragon-small", "--lambda", "1.5"),
        *("--corpus", str(bundled.documents("cloud")), "--samples", "400"),
        script="train",
    )
    assert outcome.code == 0
    assert "260 parameters (hidden+confidence), 320 samples" in outcome.output
    assert "q(x)/p(x) ≤ 1.5: AUC 0." in outcome.output
    (file,) = tmp_path.glob("data/dragonrt/verifiers/dragon-draft--dragon-small--sprinter.json")
    made = Verifier.load(file)
    assert (made.ratio, made.threshold) == (1.5, 0.5)
    assert made.pair.target == "dragon-small"
    assert made.trained_on["test"]["samples"] == 80
    pair = (made.pair.draft_fingerprint, made.pair.target_fingerprint)
    found = Verifier.for_pair(*pair)
    assert found.trained_on == made.trained_on, "a sprinter finds it by its models"
