"""What a model predicts along a text: what is read again, how rows are mixed, and when."""

from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch

from dragonrt.backends import prefix_cache
from dragonrt.backends.backend import Feed, Preemption
from dragonrt.backends.mixture import SUREST, Mixture, Relevances, RowWeights, Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.backends.transformers_.backend import TorchLogits

START = 5
PROMPT = "What do I do?"
ANSWER = "Press the green button twice, wait for the light and open the left drawer."
DOCUMENTS = ("The button is green.", "The light is on the left.")


def fresh(model: LanguageModel, weighing: Weighing | None = None) -> PrefixCache:
    rows = model.rows([model.document_kv(model.encode(text)) for text in DOCUMENTS], 64)
    return PrefixCache.with_prompt_read(rows, model.encode(PROMPT), START, weighing)


def named(tokens: list[int]) -> list[int]:
    """A different number for every prefix."""
    return list(accumulate(tokens, lambda name, token: hash((name, token)), initial=START))


def read(cache: PrefixCache, tokens: list[int], first: int) -> list[Mixture]:
    return cache.read(tokens, named(tokens), first, hidden=True)


def fed_blocks(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each forward is given, from now on."""
    fed, kind = list[int](), type(model.backend)
    forward = kind.forward

    def counted(backend: Any, feeds: list[Feed]) -> Any:
        fed.extend(len(feed.tokens) for feed in feeds)
        return forward(backend, feeds)

    monkeypatch.setattr(kind, "forward", counted)
    return fed


@pytest.mark.slow
def test_only_what_changed_is_fed_and_the_bits_stay(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = fresh(model)
    fed = fed_blocks(model, monkeypatch)
    for text, first, news in (
        ([5, 6, 7], 3, 3),
        ([5, 6, 7, 8, 9], 5, 2),
        ([5, 6, 70, 8], 4, 2),
        ([5, 6], 0, 2),
        ([90], 1, 1),
        ([90, 5, 6], 2, 2),
    ):
        assert len(text) - one.reusable_tokens(named(text), first) == news
        said = read(one, text, first)
        assert fed[-1] == news
        for mixture, expected in zip(said, read(fresh(model), text, first), strict=True):
            assert mixture.p.tobytes() == expected.p.tobytes()
            assert mixture.hidden.tobytes() == expected.hidden.tobytes()


@pytest.mark.slow
def test_a_resumed_answer_predicts_no_more_than_requested(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = model.encode(ANSWER)
    first = len(tokens) - 2
    together = read(fresh(model), tokens, first)

    monkeypatch.setattr(prefix_cache, "LONGEST_RUN", 4)
    resumed = fresh(model)
    fed = fed_blocks(model, monkeypatch)
    apart = read(resumed, tokens, first)
    assert fed == [first - 1, 3]
    assert len(apart) == len(together) == 3
    for one, other in zip(apart, together, strict=True):
        assert one.p.tobytes() == other.p.tobytes()
        assert one.hidden.tobytes() == other.hidden.tobytes()
    read(resumed, tokens, first)
    assert fed == [first - 1, 3, 3]  # nothing before what is wanted is fed twice


def test_a_text_that_begins_again_has_the_same_bits(model: LanguageModel) -> None:
    tokens = [5, 6]
    expected = [each.p.tobytes() for each in read(fresh(model), tokens, 0)]
    one = fresh(model)
    read(one, tokens, 1)
    stopped = one.request(tokens, named(tokens), 0, lambda _: None, Preemption())
    assert stopped.prompt > 0, "nothing of it is read"
    for first in (1, 0, 2, 0):
        assert [each.p.tobytes() for each in read(one, tokens, first)] == expected[first:]


def test_a_restarted_text_reads_whole_pieces_of_the_prompt(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = model.encode(PROMPT)
    rows = model.rows([model.document_kv(())], 64)
    rows.info = replace(rows.info, prompt_piece=2)
    one = PrefixCache(lambda: rows, prompt, START)
    fed = fed_blocks(model, monkeypatch)
    for first, hidden, tokens in ((0, False, len(prompt)), (0, False, 0), (0, True, None)):
        before = sum(fed)
        one.read([], [START], first, hidden=hidden)
        again = len(prompt) - (len(prompt) - 1) // 2 * 2
        assert sum(fed) - before == (again if tokens is None else tokens)


def test_rows_are_mixed_by_relevance() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    rows = TorchLogits(torch.tensor(np.log(p), dtype=torch.float32), torch.eye(2))
    said = Mixture(rows, lambda: RowWeights(np.log([3.0, 1.0])))
    assert said.p == pytest.approx(0.75 * p[0] + 0.25 * p[1])
    assert said.relevance == pytest.approx(np.log(4.0))
    assert said.hidden == pytest.approx([0.75, 0.25])
    assert said.weights == pytest.approx([0.75, 0.25])
    shares = said.shares(np.array([0, 2]))
    assert shares == pytest.approx(np.array([[0.525, 0.075], [0.025, 0.15]]))
    assert shares.sum(axis=0) == pytest.approx(said.p[[0, 2]])
    assert said.p.dtype == said.hidden.dtype == np.float32


def test_relevances_of_a_prefix_are_updated_once_on_request(model: LanguageModel) -> None:
    asked: list[list[int]] = []

    def again(tokens: list[int]) -> Relevances:
        asked.append(tokens)
        return np.array([len(tokens), 0.0])

    one = fresh(model, Weighing(np.array([1.0, 2.0]), every=2, again=again))
    tokens = [5, 6, 7, 8, 9]
    said = read(one, tokens, 0)
    assert asked == []
    initial, two, four = np.logaddexp(1, 2), np.logaddexp(2, 0), np.logaddexp(4, 0)
    assert [each.relevance for each in said] == pytest.approx(
        [initial, initial, two, two, four, four]
    )
    assert one.relevance == pytest.approx(initial)
    for each in said:
        assert each.p.sum() == pytest.approx(1, abs=1e-4)
    assert asked == [tokens[:2], tokens[:4]]


def test_who_does_not_know_counts_less_for_the_whole_answer(model: LanguageModel) -> None:
    documents = ["My flight leaves from gate B12.", "The soup needs two onions."]
    rows = [model.document_kv(model.encode(f"Document: {each}\n\n")) for each in documents]
    asked = model.encode("Question: From which gate does my flight leave?\nAnswer:")
    said = {}
    for doubt in (0.0, 0.2, 3.0):
        weighing = Weighing(np.array([1.0, 1.5]), refusal=model.refusal, doubt=doubt)
        one = PrefixCache(partial(model.rows, rows, 64), asked, START, weighing)
        said[doubt] = read(one, model.encode(" B12"), 0)
    even = np.exp([1.0, 1.5]) / np.exp([1.0, 1.5]).sum()
    assert all(each.weights == pytest.approx(even) for each in said[0.0])
    for doubt in (0.2, 3.0):
        first, *later = said[doubt]
        assert first.weights[0] > even[0]
        assert first.relevance < np.logaddexp(1.0, 1.5)
        assert later
        for each in later:
            assert np.array_equal(each.weights, first.weights)
            assert each.relevance == first.relevance
    assert said[3.0][0].weights[0] > said[0.2][0].weights[0] > even[0]


def test_no_row_is_lost_however_sure_it_is_of_not_knowing() -> None:
    sure = TorchLogits(torch.log(torch.tensor([[1.0, 1e-30], [0.5, 0.5]])), torch.eye(2))
    doubts = Weighing(np.zeros(2), refusal=0, doubt=0.2).doubts(sure)
    assert doubts == pytest.approx([0.2 * np.log(1 - SUREST), 0.2 * np.log(0.5)])
