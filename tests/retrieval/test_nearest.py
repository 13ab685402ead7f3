from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval import nearest


def clustered(n: int, dimension: int = 64, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n // 50, dimension))
    points = centres[rng.integers(len(centres), size=n)] + 0.7 * rng.normal(size=(n, dimension))
    unit: NDArray[np.float32] = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit.astype(np.float32)


def searched(index: Any, query: NDArray[np.float32], k: int) -> tuple[list[int], list[float]]:
    found = nearest.search(index, query, k)
    return [number for number, _ in found], [cosine for _, cosine in found]


def test_exact_is_the_sorted_product() -> None:
    vectors = clustered(500)
    query = clustered(500, seed=1)[0]
    ids, cosines = searched(nearest.build(vectors, 3 * np.arange(500)), query, 20)
    products = vectors @ query
    order = np.argsort(-products, kind="stable")[:20]
    assert ids == (3 * order).tolist()
    assert np.allclose(cosines, products[order], atol=1e-6)


def test_approximate_finds_what_exact_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(4000)
    exact = nearest.build(vectors, np.arange(4000))
    monkeypatch.setattr(nearest, "APPROXIMATE_FROM", 4000)
    nearest.write(nearest.build(vectors, np.arange(4000)), tmp_path / "nearest.faiss")
    approximate = nearest.restore(tmp_path / "nearest.faiss")
    recalls = []
    for query in clustered(4000, seed=2)[:20]:  # unrelated questions: harder than stored points
        wanted, best = searched(exact, query, 10)
        ids, cosines = searched(approximate, query, 10)
        recalls.append(len(set(ids) & set(wanted)) / 10)
        assert np.allclose(cosines, vectors[ids] @ query, atol=1e-6)
        assert cosines == sorted(cosines, reverse=True)
        assert cosines[0] <= best[0] + 1e-6
    assert np.mean(recalls) >= 0.95


@pytest.mark.parametrize("approximate", [False, True])
def test_building_is_deterministic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approximate: bool
) -> None:
    monkeypatch.setattr(nearest, "APPROXIMATE_FROM", 1 if approximate else 1000)
    for name in "ab":
        nearest.write(nearest.build(clustered(300), np.arange(300)), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
