"""The perplexity experiment: the corpus, the mixture over documents, and what rows say."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import RowWeights
from dragonrt.errors import DragonError
from retrieval.documents import load
from scripts.papers.dragon import perplexity
from scripts.papers.framework import Settings
from scripts.papers.intervals import Row
from scripts.papers.texts import read_corpus

TEXT = "The ferry to Vardo leaves from pier two at half past nine. " * 60


def test_a_directorys_test_file_is_evaluated_and_the_others_are_retrieved(tmp_path: Path) -> None:
    for name in ("test", "valid", "train"):
        (tmp_path / f"{name}.txt").write_text(f"This is {name}.")
    corpus = read_corpus(tmp_path)
    assert corpus.evaluated == "This is test."
    assert set(corpus.retrieved) == {"This is valid.", "This is train."}


@pytest.mark.parametrize("files", [2, 5, 11])
def test_each_fifth_file_is_evaluated_and_none_is_retrieved_too(tmp_path: Path, files: int) -> None:
    for number in range(files):
        (tmp_path / f"{number:02}.md").write_text(f"Note {number}.")
    corpus = read_corpus(tmp_path)
    assert len(corpus.evaluated.split("\n\n")) == max(1, files // 5)
    assert len(corpus.retrieved) == files - max(1, files // 5)
    assert not set(corpus.evaluated.split("\n\n")) & set(corpus.retrieved)


def test_the_last_fifth_of_a_file_is_evaluated(tmp_path: Path) -> None:
    file = tmp_path / "book.txt"
    file.write_text("a" * 80 + "b" * 20)
    corpus = read_corpus(file)
    assert (corpus.retrieved, corpus.evaluated) == (("a" * 80,), "b" * 20)


def test_nothing_to_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DragonError, match="neither a text file nor a directory"):
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
    scored = perplexity._log_likelihoods(model, documents, tokens)
    sequence = model.sequence([model.document_kv(each) for each in documents])
    after = sequence.extend(tokens[: perplexity.QUERY])
    found = perplexity.mixed(scored, np.array([0.0, 1.0]))
    for log_p, token in zip(found, tokens[perplexity.QUERY :], strict=True):
        mixture = after.mixed(RowWeights([0.0, 1.0]).logs)
        assert math.log(mixture[token]) == pytest.approx(log_p, abs=1e-3)
        after = sequence.extend([token])


def test_documents_that_do_not_fit_are_left_out_the_best_stand_last() -> None:
    documents = [[1, 1], [2, 2], [3, 3]]
    assert perplexity._context(documents, 6) == ([3, 3, 2, 2, 1, 1], 3)
    assert perplexity._context(documents, 5) == ([2, 2, 1, 1], 2)
    assert perplexity._context(documents, 1) == ([], 0)


@pytest.mark.slow
def test_a_corpus_that_holds_the_text_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perplexity, "QUICK_WINDOWS", 1)
    monkeypatch.setattr(perplexity, "QUICK_COUNTS", (0, 1))
    (tmp_path / "corpus").mkdir()
    articles = sorted(bundled.documents("cloud").glob("*.md"))[:6]
    text = " ".join(load(article).text for article in articles)
    (tmp_path / "corpus" / "test.txt").write_text(text)
    (tmp_path / "corpus" / "other.txt").write_text(text)
    settings = Settings(True, True, 1, 0, tmp_path, tmp_path / "corpus")
    rows = perplexity.run(settings, lambda done, all_: None)
    assert [row["method"] for row in rows] == [perplexity.NONE, *perplexity.METHODS]
    nats = {row["method"]: row["nats_per_token"] for row in rows}
    assert all(nats[method] < nats[perplexity.NONE] for method in perplexity.METHODS)


def rows_of(nats: dict[tuple[int, str], float]) -> list[Row]:
    return [
        {
            "corpus": "toy",
            "model": "m",
            "window": window,
            "documents": documents,
            "method": method,
            "tokens": 224,
            "nats_per_token": value,
            "documents_read": documents,
        }
        for window in range(3)
        for (documents, method), value in nats.items()
    ]


ROWS = rows_of(
    {
        (0, perplexity.NONE): math.log(100),
        (1, "CRCG/cloud"): math.log(95),
        (1, "CRCG/device"): math.log(110),
        (1, "DRCG"): math.log(90),
        (1, "DRAGON"): math.log(80),
    }
)


def test_gains_are_compared_with_the_second_best_and_drawn(tmp_path: Path) -> None:
    summary = perplexity.summarise(ROWS)
    assert summary["perplexity"]["DRAGON"]["1"]["perplexity"] == pytest.approx(80)
    gain = summary["gain over no retrieval, by documents a side"]["1"]
    assert gain == {"DRAGON": 20.0, "best other": 10.0, "ratio": 2.0}
    perplexity.plot(ROWS, tmp_path / "perplexity.png")
    assert (tmp_path / "perplexity.png").stat().st_size > 10_000
