"""`scripts/train/run controller` on a recording: its table, its files, and wrong ones."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragonrt.control.learned import Learned, controller
from scripts.train.controllers.controller_plan import ControllerPlan
from scripts.train.controllers.recording import PairRecording, RecordedText

Run = Callable[..., Any]


@pytest.fixture
def call(run: Run) -> Run:
    return partial(run, script="train")


def record(path: Path) -> None:
    """Six texts of one codec, of which half of what is drafted is accepted."""
    resolutions = ControllerPlan().resolutions
    p = np.full(20, 0.5)
    q = np.full((20, len(resolutions)), 0.25)
    bits = np.tile(10 * np.array(resolutions), (20, 1))
    text = RecordedText(p, p, p, q, 2 * q, bits)
    PairRecording("small", "large", "qs:100", resolutions, 8192, (text,) * 6).save(path)


@pytest.mark.slow
def test_a_controller_is_trained_compared_and_kept(call: Run, tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.npz", tmp_path / "mine"
    record(trace)
    outcome = call("controller", "--trace", str(trace), "--out", str(out), "--steps", "50")
    assert outcome.code == 0, outcome.errors
    lines = outcome.output.splitlines()
    assert lines[0].split() == ["controller", "reward", "tokens/s"]
    first_words = [line.split()[0] for line in lines[1:]]
    assert first_words == ["untrained", "learned", "best", "heuristic,"]
    assert f"saved as {out}.safetensors and {out}.json" in outcome.errors
    assert isinstance(controller(str(out)), Learned)
