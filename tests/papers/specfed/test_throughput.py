"""Federated throughput in virtual time: what is measured is what the delays add up to."""

import pytest

from dragonrt.backends.model import LanguageModel
from scripts.papers.specfed.throughput import DRAFT_S, LATENCY_S, WORKER_S, FederatedCase, row_of
from scripts.train.controllers.prompt import prose_prompt

FAST = 1e9


@pytest.fixture(scope="module")
def draft() -> LanguageModel:
    return LanguageModel.load("dragon-draft", "cpu")


@pytest.mark.slow
def test_a_round_takes_what_its_parts_take(draft: LanguageModel) -> None:
    """Workers that are the draft model itself: every draft stands. The first needs no forward."""
    round_s = 2 * LATENCY_S + WORKER_S
    cases = {length: FederatedCase("dense:fp32", length, 2, FAST) for length in (4, 0)}
    rows = {
        length: row_of(draft, [draft], prose_prompt(draft, "The sea"), 0, case, tokens=10)
        for length, case in cases.items()
    }
    single, blocks = rows[0], rows[4]
    assert single["digest"] == blocks["digest"]
    assert single["acceptance"] is None
    assert single["tokens_per_s"] == pytest.approx(10 / (10 * round_s - WORKER_S), rel=0.01)
    assert blocks["acceptance"] == 1
    assert blocks["tokens_per_round"] == 5
    both_s = 2 * (round_s + 4 * DRAFT_S) - DRAFT_S
    assert blocks["tokens_per_s"] == pytest.approx(10 / both_s, rel=0.01)
    assert blocks["bytes_per_token"] > 2 * 4 * draft.vocabulary
