"""What a verifier learns from: the right numbers of the right tokens, in equal share."""

from collections import Counter

import numpy as np
import pytest

from dragonrt.control.trained import confidences
from scripts.lab.model_pair import AnswerReader, ModelPair
from scripts.lab.passages import Passage, answered, questions
from scripts.train.verifiers.training import KINDS, Samples, VerifierPlan, collect


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return ModelPair.load("dragon-draft", "dragon-small")


def collected(pair: ModelPair, passage: Passage, number: int) -> Samples:
    return collect(pair, [passage], number, 5, lambda done, total: None)


def test_there_are_as_many_of_each_kind(pair: ModelPair) -> None:
    text = "The library opens at nine on Monday. The boat lies next to the old crane."
    samples = collected(pair, Passage(tuple(pair.draft.encode(text))), 103)
    assert Counter(samples.kind.tolist()) == dict.fromkeys(range(len(KINDS)), 25)


def test_a_sample_is_what_both_models_say_of_a_drafted_token(pair: ModelPair) -> None:
    """An original answer that ends at once: each sample of it is one token after the prompt."""
    prompt = pair.draft.encode("Question: Who?\nAnswer:")
    passage = Passage((*prompt, pair.draft.answer_stops[-1], *prompt), len(prompt))
    samples = collected(pair, passage, 400)
    q, p = (AnswerReader(each, prompt, 1).after([], 0)[0] for each in (pair.draft, pair.target))
    known = {}
    for token in range(pair.draft.vocabulary):
        known[tuple(confidences(q.p, token))] = np.log(q.p[token] / p.p[token])
    original = samples.kind == KINDS.index("original")
    hidden, confidences_ = samples.hidden[original], samples.confidence[original]
    assert np.array_equal(hidden, np.tile(q.hidden, (len(hidden), 1)))
    for confidence, ratio in zip(confidences_, samples.log_ratio[original], strict=True):
        assert ratio == pytest.approx(known[tuple(confidence)], abs=1e-5)
    likeliest = confidences_[:, 0].max()  # drawn as often as its probability says
    share = (confidences_[:, 0] == likeliest).mean()
    assert share == pytest.approx(q.p.max(), abs=0.17)  # 3.3 standard deviations of 100


def test_questions_are_asked_in_the_form_of_the_model(pair: ModelPair) -> None:
    text = "Document: A red boat.\n\nQuestion: What?\nAnswer: boat\nQuestion: Which?\nAnswer: red\n"
    (first, one), (second, other) = questions(text, pair.draft)
    assert first == "Document: A red boat.\n\nQuestion: What?\nAnswer:"
    assert second == f"{first} boat\nQuestion: Which?\nAnswer:"
    assert (one, other) == ("boat", "red")
    made = answered(pair.draft, second, other)
    assert pair.draft.decode(made.tokens) == text
    assert made.prompt == len(pair.draft.encode(second))


@pytest.mark.parametrize(("ratio", "third"), [(1.2, True), (1.0, False)])
def test_labels_are_the_ratio(ratio: float, third: bool) -> None:
    log_ratio = np.log(np.array((0.5, 0.99, 1.19, 1.21, 4.0), np.float32))
    empty = np.zeros((5, 1), np.float32)
    samples = Samples(empty, empty, log_ratio, np.zeros(5, np.int64))
    features, acceptable = VerifierPlan(ratio=ratio).labelled(samples)
    assert features.shape == (5, 2)
    assert acceptable.tolist() == [True, True, third, False, False]
