"""The oracle's own arithmetic and the program's give the same, over all samplers and codes."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt.distributions import Step, codec, mix
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.rules import (
    Algorithm1,
    Candidate,
    Coupled,
    Rejection,
    relevance_weights,
    side_weights,
)
from dragonrt.sampling.samplers import Sampler
from tests.oracles.brute_force import aggregated, coded, mixed, raced, sampled, softmax, verified

VOCABULARIES = (16, 40, 129, 300)
SAMPLERS = [
    Sampler(temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for temperature in (0.0, 0.5, 1.0, 1.2)
    for top_k in range(6)
    for top_p, min_p in ((1.0, 0.0), (0.9, 0.0), (1.0, 0.05), (0.7, 0.2))
]
CODES = (
    "ids",
    "dense:fp16",
    "dense:fp32",
    "topp:0.8",
    "topk:4:renorm",
    "topk:8:residual",
    "qs:100",
    "ksqs:6:40",
    "csqs:0.03:60",
)


def dense(seed: int, vocabulary: int) -> NDArray[np.float32]:
    """A model's distribution; of every fourth seed some tokens are as likely, or impossible."""
    random = np.random.default_rng(seed)
    p = np.exp(random.choice((1.0, 2.0, 4.0)) * random.standard_normal(vocabulary))
    if seed % 4 == 0:
        p[3:6], p[7:9] = p[2], 0.0
    shares: NDArray[np.float32] = (p / p.sum()).astype(np.float32)
    return shares


@pytest.mark.parametrize("name", CODES)
def test_codes(name: str) -> None:
    """What a side uses of itself, what the other side reads of it, and what that takes."""
    for seed in range(24):
        vocabulary = VOCABULARIES[seed % 4]
        p: NDArray[Any] = dense(seed, vocabulary)
        if seed % 3 == 0:
            p = sampled(Sampler(0.8, top_p=0.95), p)
        code = codec(name, vocabulary)
        beta = 0.01 * seed if name.startswith("csqs") else None
        quantized = code.quantize(p, Step(threshold=beta))
        right = coded(name, p, beta=beta)
        own = quantized.distribution
        np.testing.assert_allclose(own.to_dense(), right.p, rtol=1e-9, atol=1e-300)
        assert tuple(own.ids.tolist()) == right.listed
        if right.bits:
            assert quantized.bits + quantized.token_bits == right.bits
        if beta is not None:
            assert quantized.dropped == pytest.approx(right.dropped, abs=1e-12)
        if code.sends_distributions:
            payload = code.encode(quantized)
            read = code.decode(payload, Step(threshold=beta))
            assert np.array_equal(read.to_dense(), own.to_dense())


@pytest.mark.parametrize("name", ["topk:4:renorm", "topk:8:residual", "topp:0.8", "dense:fp16"])
def test_targets_of_both_rules(name: str) -> None:
    for seed, sampler in enumerate(SAMPLERS):
        vocabulary = VOCABULARIES[seed % 4]
        noise, code = Noise(seed), codec(name, vocabulary)
        device, cloud = dense(seed, vocabulary), dense(seed // 2 + 500, vocabulary)
        weights = side_weights(1.0 - seed % 3, 0.3)
        assert weights == pytest.approx(tuple(softmax([1.0 - seed % 3, 0.3])))
        assert relevance_weights([0.3, -1.0, 2.0]) == pytest.approx(softmax([0.3, -1.0, 2.0]))
        one, two = Coupled(noise, sampler), Algorithm1(noise, sampler)
        drawn = [code.quantize(each).distribution for each in (device, cloud)]
        right = [coded(name, each) for each in (device, cloud)]
        candidates = [Candidate(one.draft("device", 5, each), each) for each in drawn]
        drafts = [raced(seed, 5, sampled(sampler, each.p)) for each in right]
        assert [each.token for each in candidates] == drafts
        law = sampled(sampler, mixed(right, weights))
        assert one.target(5, candidates[0], candidates[1], weights) == raced(seed, 5, law)
        if sampler.temperature == 0:
            continue
        shaped = [two.shape(each) for each in (device, cloud)]
        drawn = [code.quantize(each).distribution for each in shaped]
        right = [coded(name, sampled(sampler, each)) for each in (device, cloud)]
        tokens = [two.draft("device", 5, drawn[0]), two.draft("cloud", 5, drawn[1])]
        candidates = [Candidate(*each) for each in zip(tokens, drawn, strict=True)]
        found = two.target(5, candidates[0], candidates[1], weights)
        assert found == aggregated(seed, 5, right[0], right[1], weights, tokens)


@pytest.mark.parametrize("name", ["qs:100", "ksqs:6:40", "csqs:0.03:60", "dense:fp16"])
def test_verdicts_on_blocks(name: str) -> None:
    for seed, sampler in enumerate(SAMPLERS):
        vocabulary = VOCABULARIES[seed % 4]
        by, code = Rejection(Noise(seed), sampler), codec(name, vocabulary)
        q = [dense(4 * seed + place, vocabulary) for place in range(4)]
        bent = [np.roll(each, seed % 2) for each in q]
        p = [by.shape(each) for each in (*bent, q[0])]
        drawn = [code.quantize(by.shape(each)).distribution for each in q]
        tokens = [by.draft(7 + place, each) for place, each in enumerate(drawn)]
        judged = by.verify(7, tokens, drawn, p.__getitem__)
        right = [coded(name, sampled(sampler, each)).p for each in q]
        laws = [sampled(sampler, each) for each in (*bent, q[0])]
        text, accepted = verified(seed, 7, tokens, right, laws)
        assert [*tokens[: judged.accepted], judged.token] == text
        assert judged.accepted == accepted


def test_a_whole_mixture_is_raced_over_tokens_that_nobody_lists() -> None:
    """The rest's share is a token's like any other."""
    won = 0
    for seed in range(200):
        p = [coded("topk:4:residual", dense(seed + n, 40)) for n in (0, 1000)]
        code = codec("topk:4:residual", 40)
        both = [code.quantize(dense(seed + n, 40)).distribution for n in (0, 1000)]
        right = raced(seed, 0, mixed(p, (0.5, 0.5)))
        candidates = [Candidate(0, each) for each in both]
        by = Coupled(Noise(seed), Sampler())
        assert by.target(0, candidates[0], candidates[1], (0.5, 0.5)) == right
        won += right not in {*p[0].listed, *p[1].listed}
        assert mix(both, (0.5, 0.5)).rest > 0
    assert won > 10
