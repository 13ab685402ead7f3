"""Bias and acceptance change of top-K uploads: what is measured, and that the bounds hold."""

import numpy as np
import pytest

from dragonrt.sampling.samplers import Sampler
from scripts.papers.specfed import top_k_uploads
from scripts.papers.specfed.top_k_uploads import FederatedPosition

V = 60
WEIGHTS = [0.7, 0.3]


def position(text: int, temperature: float) -> FederatedPosition:
    random = np.random.default_rng(text)
    shared = 2 * random.standard_normal(V)
    heated = Sampler(temperature)
    p = [heated.dense(np.exp(shared + random.standard_normal(V))) for _ in range(3)]
    return FederatedPosition("prose", text, 0, (p[0], p[1]), p[2])


def test_the_bias_is_the_distance_of_the_mixtures() -> None:
    """By hand, for the two tokens of the likeliest that K = 4 keeps of each worker."""
    at = position(2, 1.0)
    row = next(iter(top_k_uploads.changes(at, 1.0, {"unlike": WEIGHTS})))
    kept = []
    for p in at.workers:
        top = np.zeros(V)
        ids = np.argsort(p)[-4:]
        top[ids] = p[ids]
        kept.append(top / top.sum())
    target, uploaded = (np.average(each, axis=0, weights=WEIGHTS) for each in (at.workers, kept))
    assert (row["k"], row["reconstruction"]) == (4, "renorm")
    missed = [1 - np.sort(p)[-4:].sum() for p in at.workers]
    assert row["bound"] == pytest.approx(np.dot(WEIGHTS, missed))
    assert row["bias"] == pytest.approx(0.5 * np.abs(uploaded - target).sum(), abs=1e-3)
    change = np.minimum(at.draft, uploaded).sum() - np.minimum(at.draft, target).sum()
    assert row["acceptance_change"] == pytest.approx(abs(change), abs=1e-3)
