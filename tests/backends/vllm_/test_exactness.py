"""The laws of the verified text, on vLLM's own predictions: its batches may change last bits."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

pytest.importorskip("vllm")

from numpy.typing import NDArray
from scipy.stats import chisquare

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.row_set import RowSet
from dragonrt.distributions import Distribution, mix
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import Algorithm1, Candidate, Coupled, CoupledSpeculation, Rejection
from dragonrt.sampling.samplers import Sampler

QUESTION, ANSWERS, LEAST = [72, 111, 119, 63], 3000, 5.0
WEIGHTS = (0.6, 0.4)
DOCUMENTS = {"device": (40,), "cloud": (23, 61)}
FEW = Sampler(temperature=0.5, top_k=4)
"""A vocabulary of few tokens."""

P = NDArray[np.float64]
Text = tuple[int, ...]
Says = Callable[[str, Text, bool], list[P]]


@pytest.fixture(scope="module")
def says(model: LanguageModel) -> Says:
    """What a side says before and after each token of a text, in a block or one after another."""
    backend, documents = model.backend, {}
    for side, lengths in DOCUMENTS.items():
        arrays = [np.arange(n, n + n, dtype=np.int32) % 250 + 2 for n in lengths]
        documents[side] = [backend.load({"tokens": each}) for each in arrays]

    @cache
    def found(side: str, text: Text, in_block: bool) -> list[P]:
        rows, logs = RowSet(backend, documents[side], 16), -np.log(len(documents[side]))
        first = rows.extend(QUESTION, prompt=True)
        each = rows.extend_all(text) if in_block and text else [rows.extend([x]) for x in text]
        weights = np.full(rows.count, logs, np.float32)
        return [FEW.dense(logits.mixed(weights).copy()) for logits in (first, *each)]

    return found


def law(of: Callable[[Text], P]) -> dict[Text, float]:
    """The probabilities of the first two tokens; `of` gives those of the next one."""
    return {
        (int(x), int(y)): float(of(())[x] * of((int(x),))[y])
        for x in np.flatnonzero(of(()))
        for y in np.flatnonzero(of((int(x),)))
    }


def assert_fits(texts: Sequence[Text], wanted: dict[Text, float]) -> None:
    """Assert that texts have a law: chi-square, rare ones together."""
    found = Counter(texts)
    assert found.keys() <= wanted.keys()
    often = [text for text, p in wanted.items() if p * len(texts) >= LEAST]
    counts = [float(found[text]) for text in often]
    expected = [wanted[text] * len(texts) for text in often]
    rest = len(texts) - sum(expected)
    if rest >= LEAST:
        counts, expected = [*counts, len(texts) - sum(counts)], [*expected, rest]
    scale = sum(counts) / sum(expected)
    assert len(often) > 5
    assert chisquare(counts, [scale * each for each in expected]).pvalue > 1e-4


@pytest.mark.parametrize("kind", [Algorithm1, Coupled])
def test_two_sides_give_their_mixture(says: Says, kind: type[Algorithm1 | Coupled]) -> None:
    def side(name: str, text: Text, in_block: bool) -> Distribution:
        return Distribution.from_dense(says(name, text, in_block)[-1])

    def answer(seed: int) -> Text:
        rule, text = kind(Noise(seed), Sampler()), Text()
        for step in range(2):
            device, cloud = (side(name, text, True) for name in ("device", "cloud"))
            drafts = rule.draft("device", step, device), rule.draft("cloud", step, cloud)
            candidates = Candidate(drafts[0], device), Candidate(drafts[1], cloud)
            text = (*text, rule.target(step, *candidates, WEIGHTS))
        return text

    def mixed(text: Text) -> P:
        return mix([side(name, text, False) for name in ("device", "cloud")], WEIGHTS).to_dense()

    assert_fits([answer(seed) for seed in range(ANSWERS)], law(mixed))


@pytest.mark.parametrize("kind", [Rejection, CoupledSpeculation])
def test_a_verified_draft_is_what_the_verifier_says(
    says: Says, kind: type[Rejection | CoupledSpeculation]
) -> None:
    def answer(seed: int) -> Text:
        rule, text = kind(Noise(seed), Sampler()), Text()
        while len(text) < 2:
            first, drafts, q = len(text), text, []
            while len(drafts) < 2:
                q.append(Distribution.from_dense(says("device", drafts, False)[-1]))
                drafts = (*drafts, rule.draft(len(drafts), q[-1]))
            p = says("cloud", drafts, True)[first:]
            found = rule.verify(first, drafts[first:], q, p.__getitem__)
            text = (*drafts[: first + found.accepted], found.token)
        return text[:2]

    wanted = law(lambda text: says("cloud", text, False)[-1])
    assert_fits([answer(seed) for seed in range(ANSWERS)], wanted)
