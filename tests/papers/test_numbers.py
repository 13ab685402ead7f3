"""Numbers of figures by hand: theorems, laws and sums that their rows are made of."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution, codec, entropy
from dragonrt.sampling.rules import VerifyResult
from dragonrt.sampling.samplers import Sampler
from dragonrt.traces.events import Cause, TokenDecided
from scripts.lab.arena import Pace
from scripts.papers.dragon import wire_bytes
from scripts.papers.dragon.speedup_theory import eq7, theorem
from scripts.papers.qsv.quality import first_token_law
from scripts.papers.specfed import top_k_uploads
from scripts.papers.specfed.top_k_uploads import FederatedPosition
from scripts.papers.speculation import DraftedStep, VerifiedBlock
from scripts.papers.sprinter.latency import CONFIRMED, OWN, PASSED, REPLACED, origin
from scripts.papers.sqs import bound as sqs_bound


@pytest.mark.parametrize(
    ("acceptance", "pace", "expected"),
    [
        (0.5, Pace(0.01, 0.01, 0.1), 1 / (1 - 0.5 / 1.1)),
        (0.99, Pace(0.005, 0.01, 0.3), 23.85),
        (0.5, Pace(0.05, 0.03, 0.1), 1 / (1 - (1 - 5 / 13) * 0.5)),
        (0.99, Pace(0.2, 0.03, 0.1), 1.0),
    ],
)
def test_the_theorem_and_eq7_agree(acceptance: float, pace: Pace, expected: float) -> None:
    assert theorem(acceptance, pace) == pytest.approx(expected, rel=1e-3)
    assert eq7(0.0, pace) / eq7(acceptance, pace) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("nats", [0.05, 1.5, 4.0])
def test_a_synthetic_distribution_has_the_given_entropy(nats: float) -> None:
    p = wire_bytes.zipf(5000, nats, np.random.default_rng(0))
    assert p.sum() == pytest.approx(1)
    assert entropy(Distribution.from_dense(p)) == pytest.approx(nats, abs=1e-3)
    assert p.argmax() != 0, "its ids are in random order"


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


DRAFT = np.array((0.5, 0.25, 0.15, 0.1))
TARGET = np.array((0.25, 0.5, 0.15, 0.1))


def block(accepted: int) -> VerifiedBlock:
    """Two drafts from the two likeliest tokens, in sixths: 4/6 and 2/6."""
    quantized = codec("ksqs:2:6", 4).quantize(DRAFT)
    drafted = [DraftedStep(0, DRAFT, quantized), DraftedStep(0, DRAFT, quantized)]
    return VerifiedBlock(drafted, [TARGET, TARGET, TARGET], VerifyResult(accepted, 1))


def test_the_terms_are_summed_over_the_tokens_that_were_judged() -> None:
    found = sqs_bound.sums([block(0), block(2)], 6)
    assert (found["tokens"], found["batches"], found["judged"], found["rejected"]) == (4, 2, 3, 1)
    assert found["discrepancy"] == pytest.approx(3 * 0.25)
    assert found["expected"] == pytest.approx(3 * (4 / 6 - 0.25))
    assert found["dropped"] == pytest.approx(3 * 0.25)
    assert found["lattice"] == pytest.approx(3 * 2 / (4 * 6))
    assert found["steered"] == pytest.approx(4 * 0.25), "once more behind a block that stands"
    assert found["expected"] <= sqs_bound.bound(found)


Q = np.array((0.55, 0.24, 0.14, 0.07))
P = np.array((0.2, 0.5, 0.1, 0.2))
SENT = codec("qs:4", 4).quantize(Q).distribution


def test_drafts_from_what_is_sent_leave_the_cloud_s_law() -> None:
    assert not np.allclose(SENT.to_dense(), Q)
    np.testing.assert_allclose(first_token_law(SENT, SENT, P), P, atol=1e-15)


def test_drafts_from_the_exact_distribution_do_not() -> None:
    law = first_token_law(Distribution.from_dense(Q), SENT, P)
    assert law.sum() == pytest.approx(1)
    assert np.abs(law - P).sum() > 0.05


def test_the_same_distribution_on_both_sides_refuses_nothing() -> None:
    p = SENT.to_dense()
    np.testing.assert_array_equal(first_token_law(SENT, SENT, p), p)


@pytest.mark.parametrize(
    ("stands", "cause", "expected"),
    [
        (True, "own", PASSED),
        (True, "target", CONFIRMED),
        (False, "target", REPLACED),
        (None, "target", OWN),
    ],
)
def test_the_origin_of_a_token(stands: bool | None, cause: Cause, expected: str) -> None:
    assert origin(TokenDecided(0, 7, stands, None, cause, 0.0, 1.0)) == expected
