"""`sprinter-roc`: curves of verifiers that were trained on the spot."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scripts.papers.framework import Settings
from scripts.papers.intervals import grouped
from scripts.papers.sprinter.roc import BUNDLED, SAMPLES_QUICK, run
from scripts.train.verifiers import training
from scripts.train.verifiers.samples import Samples
from scripts.train.verifiers.texts import SHARES, Texts
from scripts.train.verifiers.training import Parts


def samples(number: int, seed: int) -> Samples:
    """Tokens whose ratio shows in their confidence, and less so in the hidden state."""
    random = np.random.default_rng(seed)
    log_ratio = random.normal(0.1, 0.5, number)
    seen = [log_ratio[:, None] + random.normal(size=(number, 3)) * noise for noise in (1.0, 0.2)]
    hidden, confidence = (each.astype(np.float32) for each in seen)
    return Samples(hidden, confidence, log_ratio.astype(np.float32), np.arange(number) % 4)


def made_up(
    pair: object, texts: Texts, number: int, seed: int, progress: Callable[[str, int, int], None]
) -> Parts:
    held_out = [passage for passage in texts["test"] if passage.prompt]
    assert held_out == texts["test"], "answers to the sample questions"
    parts: Parts = {}
    for place, (part, share) in enumerate(SHARES.items()):
        parts[part] = samples(round(share * number), 10 * seed + place)
        progress(part, len(parts[part]), len(parts[part]))
    return parts


@pytest.mark.slow
def test_verifiers_are_trained_and_scored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(training, "collect_parts", made_up)
    told: list[tuple[int, int]] = []
    settings = Settings(quick=True, real=True, repeats=2, seed=0, results=tmp_path)
    rows = run(settings, lambda done, total: told.append((done, total)))
    curves = grouped(rows, "verifier", "ratio", "repeat")
    assert len(curves) == 1 + 2 * 2 * 3
    auc = {key: curve[0]["auc"] for key, curve in curves.items()}
    for (name, ratio, repeat), curve in curves.items():
        assert (curve[0]["eta_tp"], curve[0]["eta_fp"]) == (1, 1)
        if name == BUNDLED:
            assert auc[name, ratio, repeat] > 0.8
        else:
            assert curve[0]["samples"] == SAMPLES_QUICK / 5
            assert auc["hidden", ratio, repeat] < auc["hidden+confidence", ratio, repeat]
    assert told[-1] == (2 * SAMPLES_QUICK, 2 * SAMPLES_QUICK)
    assert told == sorted(told)
