"""What a verifier learns from: the right numbers of the right tokens, in equal share."""

import numpy as np
import pytest
import torch

from dragonrt.backends.model import LanguageModel
from dragonrt.control.verifier import confidences
from scripts.train.verifiers.models import BatchedModel, BatchedPair
from scripts.train.verifiers.samples import Samples, _drawn, collect
from scripts.train.verifiers.texts import Passage


@pytest.fixture(scope="module")
def pair() -> BatchedPair:
    return BatchedPair(
        BatchedModel.load("dragon-draft", "cpu"), BatchedModel.load("dragon-opt", "cpu")
    )


@pytest.fixture(scope="module")
def passages(pair: BatchedPair) -> list[Passage]:
    text = "The library opens at nine on Monday. The boat lies next to the old crane."
    tokens = pair.draft.encode(text)
    return [Passage(tuple(tokens[start:])) for start in range(4)]


@pytest.fixture(scope="module")
def samples(pair: BatchedPair, passages: list[Passage]) -> Samples:
    return collect(pair, passages, 103, 5, lambda done, total: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dragon-draft", "dragon-opt"])
def test_a_batch_says_what_each_text_alone_says(name: str) -> None:
    batched, alone = BatchedModel.load(name, "cpu"), LanguageModel.load(name, "cpu")
    texts = [list(range(10, 10 + length)) for length in (3, 17, 9)]
    more = [[30, 31], [40, 41], [50, 51]]
    rows = batched.read(texts)
    for step in range(3):
        for row, text in enumerate(texts):
            sequence = alone.sequence([alone.document_kv([])])
            said = sequence.extend(text + more[row][:step])
            assert np.allclose(rows.said.hidden[row], said.hidden()[0], atol=1e-4)
            wanted = said.at(np.arange(alone.vocabulary))[0]
            assert np.allclose(rows.said.log_probabilities[row], wanted, atol=1e-4)
        if step < 2:
            rows.append(torch.tensor([after[step] for after in more]))


def test_a_verifier_at_run_time_reads_the_same_features(
    pair: BatchedPair, samples: Samples
) -> None:
    """Both models' numbers of the drafted token follow from the hidden state alone."""
    output = pair.draft._model.get_output_embeddings()
    with torch.inference_mode():
        q = output(torch.from_numpy(samples.hidden)).softmax(dim=1).numpy()
    for row in range(0, 100, 7):
        token = int(np.abs(q[row] - samples.confidence[row, 0]).argmin())
        np.testing.assert_allclose(
            samples.confidence[row], confidences(q[row], token), rtol=1e-3, atol=1e-5
        )


def test_labels_are_the_ratio_and_the_acceptance() -> None:
    log_ratio = np.log(np.array((0.5, 1.0, 1.19, 1.21, 4.0), np.float32))
    empty = np.zeros((5, 1), np.float32)
    made = Samples(empty, empty, log_ratio, np.zeros(5, np.int64))
    assert made.acceptable(1.2).tolist() == [True, True, True, False, False]
    assert made.acceptable(1.0).tolist() == [True, True, False, False, False]
    assert made.acceptance() == pytest.approx([1, 1, 1 / 1.19, 1 / 1.21, 0.25])


def test_tokens_are_drawn_as_often_as_their_probabilities_say() -> None:
    p = torch.tensor((0.4, 0.001, 0.3, 0.2, 0.049, 0.05))
    rows = p.log().expand(60_000, -1)
    drawn = _drawn(rows, torch.Generator().manual_seed(3))[:, 0]
    expected = 60_000 * p.numpy()
    counts = np.bincount(drawn.numpy(), minlength=6)
    assert float(((counts - expected) ** 2 / expected).sum()) < 20.5  # 1 in 1000, 5 degrees


@pytest.mark.slow
def test_an_answer_ends_where_it_would_at_run_time(pair: BatchedPair) -> None:
    newline = pair.draft.encode("\n")
    assert set(pair.draft.answer_stops) == {*pair.draft.stop_tokens, *newline}
    asked = pair.draft.encode("Question: Who?\nAnswer:")
    line = Passage((*asked, *newline, *asked), len(asked))
    text = Passage((*asked, *newline, *asked))
    answered, going_on = (
        collect(pair, [passage], 40, 0, lambda *_: None) for passage in (line, text)
    )
    # of an original answer that ends at once there is one sample, the same each time
    hidden = answered.hidden[answered.kind == 0]
    assert np.allclose(hidden, hidden[0], atol=1e-4)
    assert not np.allclose(going_on.hidden[going_on.kind == 0], hidden[0], atol=1e-4)
