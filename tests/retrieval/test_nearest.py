from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retrieval import nearest


def clustered(n: int, dimension: int = 64, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n // 50, dimension))
    points = centres[rng.integers(len(centres), size=n)] + 0.7 * rng.normal(size=(n, dimension))
    unit: NDArray[np.float32] = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit.astype(np.float32)


def test_exact_is_the_sorted_product() -> None:
    vectors = clustered(500)
    query = clustered(500, seed=1)[0]
    rows, scores = nearest.exact(vectors, query, 20)
    products = vectors @ query
    assert rows.tolist() == np.argsort(-products, kind="stable")[:20].tolist()
    assert np.allclose(scores, products[rows], atol=1e-6)


def test_ties_go_to_the_smaller_row() -> None:
    vectors = np.tile(clustered(100)[:1], (5, 1))
    assert nearest.exact(vectors, vectors[0], 5)[0].tolist() == [0, 1, 2, 3, 4]


def test_fewer_vectors_than_asked_for() -> None:
    vectors = clustered(100)[:3]
    assert len(nearest.exact(vectors, vectors[0], 10)[0]) == 3


def test_approximate_finds_what_exact_finds(tmp_path: Path) -> None:
    vectors = clustered(4000)
    path = tmp_path / "nearest.faiss"
    path.write_bytes(nearest.build(vectors))
    index = nearest.restore(str(path))
    recalls = []
    for query in clustered(4000, seed=2)[:20]:  # unrelated questions: harder than stored points
        wanted, cosines = nearest.exact(vectors, query, 10)
        rows, scores = nearest.approximate(index, vectors, query, 10)
        recalls.append(len(set(rows.tolist()) & set(wanted.tolist())) / 10)
        assert np.allclose(scores, vectors[rows] @ query, atol=1e-6)
        assert (np.diff(scores) <= 0).all()
        assert scores[0] <= cosines[0] + 1e-6
    assert np.mean(recalls) >= 0.95


def test_building_is_deterministic() -> None:
    vectors = clustered(300)
    assert nearest.build(vectors) == nearest.build(vectors)
