"""The perplexity experiment: the corpus, the mixture over documents, and what rows say."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.backends.mixture import RowWeights
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from scripts.papers.dragon import perplexity
from scripts.papers.dragon.baselines.reading import fitting
from scripts.papers.texts import read_corpus

TEXT = "The ferry to Vardo leaves from pier two at half past nine. " * 60


def test_nothing_to_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DragonError):
        read_corpus(tmp_path)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=8), st.integers(0, 99))
def test_both_sides_weighed_mixtures_are_one_mixture(scores: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    p = random.uniform(0.01, 1.0, (len(scores), 3))
    half = len(scores) // 2
    total = np.zeros(3)
    h = [np.logaddexp.reduce(part) for part in (scores[:half], scores[half:])]
    for part, rows, mine in zip(
        (scores[:half], scores[half:]), (p[:half], p[half:]), h, strict=True
    ):
        eta = math.exp(mine - np.logaddexp.reduce(h))
        weights = np.exp(np.array(part) - mine)
        total += eta * (weights @ rows)
    found = perplexity.mixed(np.log(p), np.array(scores))
    assert np.exp(found) == pytest.approx(total)


def test_likelihoods_are_those_of_decoding_token_by_token(model: LanguageModel) -> None:
    tokens = model.encode(TEXT)[:40]
    documents = [[], model.encode("Document: The ferry is late.\n\n")]
    scored = perplexity.log_likelihoods(model, documents, tokens)
    sequence = model.rows([model.document_kv(each) for each in documents])
    after = sequence.extend(tokens[: perplexity.QUERY])
    found = perplexity.mixed(scored, np.array([0.0, 1.0]))
    for log_p, token in zip(found, tokens[perplexity.QUERY :], strict=True):
        mixture = after.mixed(RowWeights([0.0, 1.0]).logs)
        assert math.log(mixture[token]) == pytest.approx(log_p, abs=1e-3)
        after = sequence.extend([token])


def test_documents_that_do_not_fit_are_left_out_best_last() -> None:
    documents = [[1, 1], [2, 2], [3, 3]]
    assert fitting(documents, 6) == ([3, 3, 2, 2, 1, 1], 3)
    assert fitting(documents, 5) == ([2, 2, 1, 1], 2)
    assert fitting(documents, 1) == ([], 0)


def test_methods_are_compared_within_a_window() -> None:
    nats = {(0, perplexity.NONE): 3.0, (1, "DRCG"): 2.9, (1, perplexity.DRAGON): 2.8}
    rows = [
        {"documents": k, "method": method, "window": window, "nats_per_token": mean + window}
        for window in range(5)
        for (k, method), mean in nats.items()
    ]
    beside = perplexity.over(rows, perplexity.DRAGON)[1, "DRCG"]
    assert beside.low == pytest.approx(math.exp(0.1)) == pytest.approx(beside.high)
    assert perplexity.over(rows, perplexity.NONE)[1, "DRCG"].value == pytest.approx(math.exp(-0.1))
    assert (0, perplexity.NONE) not in perplexity.over(rows, perplexity.NONE)
