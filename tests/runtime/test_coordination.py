"""The coordinator's text without any runtime: exact by enumeration, ended where it must end."""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dragonrt.distributions import Distribution, block_steps, codec, decode_block
from dragonrt.errors import DragonError
from dragonrt.runtime.draft import extend_hash, start_hash
from dragonrt.runtime.modes.federated.coordination import Coordination
from dragonrt.runtime.modes.federated.plan import FederatedPlan
from dragonrt.runtime.modes.federated.quorum import (
    LEAST_DEADLINE_S,
    RoundTrips,
    deadline_s,
    round_weights,
)
from dragonrt.runtime.outcome import Finish
from dragonrt.sampling import Sampler, SamplingError, mixture

V = 6
PLAN = FederatedPlan(
    seed=3, sampler=Sampler(1.0), max_tokens=12, block_tokens=3, codec="topk:3:residual"
)
WEIGHTS = (0.7, 0.3)


def says(who: int, prefix_hash: int) -> NDArray[np.float64]:
    """The model `who` (0 drafts) after a prefix."""
    shared = np.random.default_rng(prefix_hash % 2**32).standard_normal(V)
    own = np.random.default_rng((prefix_hash + who) % 2**32).standard_normal(V)
    p: NDArray[np.float64] = np.exp(2 * shared + own)
    return p / p.sum()


def answer(plan: FederatedPlan) -> Coordination:
    """The answer of two workers that are always there."""
    coordination = Coordination(plan, V)
    coder = codec(plan.codec, V)
    while coordination.finish is None:
        line, decided = coordination.line, coordination.decided
        while not coordination.complete:
            coordination.draft(says(0, line.hash))
        hashes = line.hashes[decided:]
        assert len(hashes) == len(coordination.drafted) + 1
        uploads = [
            [coder.quantize(says(who, each)).distribution for each in hashes] for who in (1, 2)
        ]
        before = line.tokens[:decided]
        verified = coordination.verify(uploads, WEIGHTS)
        assert line.tokens == [*before, *verified.tokens]
        assert coordination.decided == len(line)
    return coordination


def token_by_token(plan: FederatedPlan) -> list[int]:
    """The coupled text by its definition: argmax of the shaped mixture over the exponentials."""
    rule, coder = plan.speculative_rule(), codec(plan.codec, V)
    tokens: list[int] = []
    prefix_hash = start_hash(plan.seed)
    while len(tokens) < plan.max_tokens and not (tokens and tokens[-1] in plan.stop_tokens):
        uploads = [coder.quantize(says(who, prefix_hash)).distribution for who in (1, 2)]
        target = rule.shape(mixture(uploads, WEIGHTS))
        tokens.append(rule.verify(len(tokens), (), None, [target]).token)
        prefix_hash = extend_hash(prefix_hash, tokens[-1])
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_coupled_text_does_not_depend_on_the_blocks(temperature: float) -> None:
    for seed in range(10):
        plan = replace(PLAN, seed=seed, sampler=Sampler(temperature), stop_tokens=(0,))
        expected = token_by_token(plan)
        for block_tokens in (0, 1, 3, 8):
            coordination = answer(replace(plan, block_tokens=block_tokens))
            assert coordination.line.tokens == expected
            stopped = expected[-1] == 0
            assert coordination.finish is (Finish.STOP if stopped else Finish.LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("block_tokens", [0, 2])
def test_every_pair_of_tokens_comes_as_often_as_the_mixture_says(
    rule: str, block_tokens: int
) -> None:
    """Models that read the text: two tokens, so the second depends on the first."""

    def model(who: int, first: int | None) -> NDArray[np.float64]:
        return says(who, 17 if first is None else 100 + first)

    coder = codec(PLAN.codec, V)

    @functools.cache
    def uploaded(who: int, first: int | None) -> Distribution:
        return coder.quantize(model(who, first)).distribution

    def target(first: int | None) -> NDArray[np.float64]:
        both = (uploaded(who, first).to_dense() for who in (1, 2))
        return np.average(list(both), axis=0, weights=WEIGHTS)

    counted = np.zeros((V, V))
    runs = 1500
    for seed in range(runs):
        plan = replace(PLAN, seed=seed, rule=rule, max_tokens=2, block_tokens=block_tokens)
        coordination = Coordination(plan, V)
        while coordination.finish is None:
            line, decided = coordination.line, coordination.decided
            while not coordination.complete:
                coordination.draft(model(0, line.tokens[0] if line.tokens else None))
            texts = [line.tokens[:n] for n in range(decided, len(line) + 1)]
            uploads = [
                [uploaded(who, text[0] if text else None) for text in texts] for who in (1, 2)
            ]
            coordination.verify(uploads, WEIGHTS)
        counted[tuple(coordination.line.tokens)] += 1
    law = np.array([target(None)[x] * target(x) for x in range(V)])
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert stats.chisquare(counted.ravel(), runs * law.ravel() / law.sum()).pvalue > 1e-3


def test_a_block_leaves_room_for_the_token_behind_it() -> None:
    coordination = Coordination(replace(PLAN, max_tokens=2, block_tokens=8), V)
    drafted = 0
    while not coordination.complete:
        coordination.draft(says(0, coordination.line.hash))
        drafted += 1
    assert drafted == 1
    assert Coordination(replace(PLAN, max_tokens=1), V).complete


def test_a_drafted_stop_token_ends_block_and_answer() -> None:
    plan = replace(PLAN, stop_tokens=(2,), sampler=Sampler(0.0), codec="topk:6:renorm")
    coordination = Coordination(plan, V)
    sure = np.full(V, 0.01)
    sure[2] = 1
    coordination.draft(sure)
    assert coordination.complete
    upload = [codec(plan.codec, V).quantize(sure).distribution] * 2
    verified = coordination.verify([upload, upload], WEIGHTS)
    assert (verified.tokens, verified.accepted, verified.resampled) == ((2,), 1, False)
    assert coordination.finish is Finish.STOP


def test_the_payload_holds_the_block() -> None:
    coordination = Coordination(PLAN, V)
    while not coordination.complete:
        coordination.draft(says(0, coordination.line.hash))
    assert decode_block(codec("ids", V), coordination.payload(), block_steps(0, 3)) == (
        list(coordination.drafted),
        None,
    )


def test_the_weights_of_those_present() -> None:
    assert round_weights("fixed", (0.5, 0.3, 0.2), (0.0, None, 9.0)) == pytest.approx(
        (5 / 7, 0, 2 / 7)
    )
    for present in itertools.product([True, False], repeat=3):
        relevances = [h if here else None for h, here in zip((0.0, 1.0, 2.0), present, strict=True)]
        if not any(present):
            with pytest.raises(SamplingError):
                round_weights("relevance", (1, 1, 1), relevances)
            continue
        weights = round_weights("relevance", (1, 1, 1), relevances)
        expected = [np.exp(h) if h is not None else 0.0 for h in relevances]
        assert weights == pytest.approx(np.array(expected) / sum(expected), abs=1e-12)


def test_the_deadline_follows_the_slowest_median() -> None:
    quick, slow = RoundTrips(), RoundTrips()
    assert deadline_s([quick, slow]) == LEAST_DEADLINE_S
    quick.add(0.1)
    for seconds in (0.5, 0.6, 40.0):  # one slip leaves the median where it was
        slow.add(seconds)
    assert deadline_s([quick, slow]) == pytest.approx(2.4)
    assert deadline_s([quick]) == LEAST_DEADLINE_S


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (replace(PLAN, codec="ids"), "ids"),
        (replace(PLAN, rule="sample-quantize"), "coupled or rejection"),
        (replace(PLAN, block_tokens=256), "255"),
        (replace(PLAN, quorum_deadline_s=0.0), "above 0"),
    ],
)
def test_plans_that_make_no_sense_are_refused(plan: FederatedPlan, line: str) -> None:
    PLAN.check()
    with pytest.raises(DragonError, match=line):
        plan.check()
