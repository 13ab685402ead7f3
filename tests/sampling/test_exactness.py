"""Exactness by enumeration: every outcome over all the noise, through the real functions."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.distributions import Distribution, codec, mix
from dragonrt.sampling.noise import Noise, Purpose
from dragonrt.sampling.rules import (
    Algorithm1,
    Candidate,
    SpeculativeRule,
    VerifyResult,
    expected_acceptance_algorithm1,
    rule,
    speculative_rule,
    token_acceptance,
)
from dragonrt.sampling.samplers import Sampler, sample
from dragonrt.side import Side


def sparse(ids: list[int], p: list[float], rest: float = 0.0) -> Distribution:
    total = sum(p) + rest
    return Distribution(np.array(ids), np.array(p) / total, rest / total, 6)


PAIRS = {
    "overlapping": (sparse([0, 1, 2], [5, 2, 1]), sparse([1, 2, 4], [3, 3, 2])),
    "disjoint": (sparse([0, 1], [3, 1]), sparse([2, 5], [1, 3])),
    "equal": (sparse([0, 1, 3], [5, 2, 1]), sparse([0, 1, 3], [5, 2, 1])),
    "one rest": (sparse([0, 1, 2], [5, 2, 1], 1.5), sparse([1, 2, 4], [3, 3, 2])),
    "two rests": (sparse([0, 1], [5, 2], 1), sparse([1, 2, 4], [3, 3, 2], 3)),
}


def pieces(function: Callable[[float], int]) -> list[tuple[float, float, int]]:
    """Start, end and value of the pieces of a piecewise constant function on [0, 1).

    By bisection to the last bit, in cells narrow enough that no piece hides between equal ends.
    """
    cells = 16
    ends = [
        ((i + 1) / cells, function(float(np.nextafter((i + 1) / cells, 0)))) for i in range(cells)
    ]
    found: list[tuple[float, float, int]] = []
    begin, at, value = 0.0, 0.0, function(0.0)
    for end, last in ends:
        if at and function(at) != value:
            found.append((begin, at, value))
            begin, value = at, function(at)
        while value != last:
            left, right = max(begin, at), float(np.nextafter(end, 0))
            while (middle := (left + right) / 2) not in (left, right):
                left, right = (middle, right) if function(middle) == value else (left, middle)
            found.append((begin, right, value))
            begin, value = right, function(right)
        at = end
    return [*found, (begin, 1.0, value)]


@pytest.mark.parametrize("p", [p for pair in PAIRS.values() for p in pair])
def test_sample_gives_every_token_its_measure(p: Distribution) -> None:
    measure = np.zeros(p.vocabulary)
    for start, end, token in pieces(lambda u: sample(p, u)):
        measure[token] += end - start
    assert np.allclose(measure, p.to_dense(), rtol=0, atol=1e-12)


class ScriptedNoise(Noise):
    """Noise whose uniform numbers the test chooses, step by step, and whose races are fixed."""

    __slots__ = ("script",)

    def __init__(self) -> None:
        super().__init__(0)
        self.script: dict[tuple[Purpose, int], float] = {}

    @override
    def uniform(self, purpose: Purpose, side: Side | None, step: int) -> float:
        return self.script[purpose, step]


class Enumeration:
    """All outcomes of one step of Algorithm 1: the target's law, and P(draft = target)."""

    def __init__(
        self, device: Distribution, cloud: Distribution, eta_device: float, gamma: float = 0.5
    ) -> None:
        self._noise = ScriptedNoise()
        self._rule = Algorithm1(self._noise, Sampler(), gamma)
        self._gamma = gamma
        self._weights = (eta_device, 1 - eta_device)
        self._device, self._cloud = device, cloud
        self.law = np.zeros(device.vocabulary)
        self.acceptance = {"device": 0.0, "cloud": 0.0}
        for d_start, d_end, x_device in pieces(self._draft("device", device)):
            for c_start, c_end, x_cloud in pieces(self._draft("cloud", cloud)):
                for share, token in self._targets(x_device, x_cloud):
                    mass = (d_end - d_start) * (c_end - c_start) * share
                    self.law[token] += mass
                    self.acceptance["device"] += mass * (token == x_device)
                    self.acceptance["cloud"] += mass * (token == x_cloud)

    def _draft(self, side: Side, p: Distribution) -> Callable[[float], int]:
        def draft(u: float) -> int:
            self._noise.script = {(Purpose.DRAFT, 0): u}
            return self._rule.draft(side, 0, p)

        return draft

    def _targets(self, x_device: int, x_cloud: int) -> list[tuple[float, int]]:
        device, cloud = Candidate(x_device, self._device), Candidate(x_cloud, self._cloud)

        def target(choice: float, accept: float, resample: float) -> int:
            self._noise.script = {
                (Purpose.CHOICE, 0): choice,
                (Purpose.ACCEPT, 0): accept,
                (Purpose.RESAMPLE, 0): resample,
            }
            return self._rule.target(0, device, cloud, self._weights)

        outcomes = []
        for taken, choice in ((self._gamma, 0.0), (1 - self._gamma, np.nextafter(1, 0))):
            # A refused draft is never resampled as itself, so one resample shows every refusal.
            for start, end, _ in pieces(partial(target, choice, resample=0.5)):
                u = (start + end) / 2
                for low, high, x in pieces(partial(target, choice, u)):
                    outcomes.append((taken * (end - start) * (high - low), x))
        return outcomes


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("eta", [0.5, 0.83])
@pytest.mark.parametrize("gamma", [0.5, 0.0, 0.3, 1.0])
def test_algorithm1_is_exact(pair: str, eta: float, gamma: float) -> None:
    device, cloud = PAIRS[pair]
    outcome = Enumeration(device, cloud, eta, gamma)
    mixture = mix((device, cloud), (eta, 1 - eta)).to_dense()
    assert np.allclose(outcome.law, mixture, rtol=0, atol=1e-12)
    of_device = expected_acceptance_algorithm1(device, cloud, eta, gamma)
    of_cloud = expected_acceptance_algorithm1(cloud, device, 1 - eta, 1 - gamma)
    assert outcome.acceptance["device"] == pytest.approx(of_device, abs=1e-12)
    assert outcome.acceptance["cloud"] == pytest.approx(of_cloud, abs=1e-12)


def test_distributions_equal_up_to_rounding_keep_the_draft() -> None:
    noise = ScriptedNoise()
    noise.script = {(Purpose.CHOICE, 0): 0.0, (Purpose.ACCEPT, 0): 0.0}
    device = Distribution(np.arange(3), np.array([0.1, 0.2, 0.7]), 0.0, 3)
    cloud = Distribution(np.arange(3), np.array([0.1, 0.2, np.nextafter(0.7, 0)]), 0.0, 3)
    each = rule("algorithm1", noise, Sampler())
    assert each.target(0, Candidate(2, device), Candidate(2, cloud), (0.0, 1.0)) == 2


def drafts(
    each: SpeculativeRule, noise: ScriptedNoise, step: int, q: Distribution
) -> list[tuple[float, int]]:
    def draft(u: float) -> int:
        noise.script[Purpose.DRAFT, step] = u
        return each.draft(step, q)

    return [(end - start, token) for start, end, token in pieces(draft)]


def verdicts(
    each: SpeculativeRule,
    noise: ScriptedNoise,
    tokens: Sequence[int],
    q: Sequence[Distribution],
    p: Sequence[NDArray[np.float64]],
) -> list[tuple[float, VerifyResult]]:
    """All verdicts on a block that starts at step 0, by enumeration of one token after another."""

    def verify(position: int, accept: float, resample: float) -> VerifyResult:
        noise.script = {(Purpose.ACCEPT, step): 0.0 for step in range(position)}
        noise.script[Purpose.ACCEPT, position] = accept
        noise.script[Purpose.RESAMPLE, position] = resample
        for step in range(position + 1, len(tokens)):
            noise.script[Purpose.ACCEPT, step] = 0.0
        return each.verify(0, tokens, q, p.__getitem__)

    outcomes, reached = [], 1.0
    for position, token in enumerate(tokens):
        # What is refused even by the smallest number is refused by all, wherever it stands.
        stands = 0.0
        for start, end, code in pieces(
            lambda u, at=position: verify(at, u, 0.5).accepted > at  # type: ignore[misc]
        ):
            if code:
                stands += end - start
                continue
            u = (start + end) / 2
            for low, high, x in pieces(
                lambda v, at=position, u=u: verify(at, u, v).token  # type: ignore[misc]
            ):
                assert x != token
                mass = reached * (end - start) * (high - low)
                outcomes.append((mass, verify(position, u, (low + high) / 2)))
                assert outcomes[-1][1] == VerifyResult(position, x)
        reached *= stands
        if not reached:
            return outcomes
    return [*outcomes, (reached, verify(len(tokens), 0.0, 0.0))]


RULES = ["rejection", "sample-quantize"]


def first_token_law(
    name: str, exact: Distribution, q: Distribution, p: NDArray[np.float64]
) -> NDArray[np.float64]:
    noise = ScriptedNoise()
    each = speculative_rule(name, noise, Sampler())
    law = np.zeros(p.size)
    for share, x in drafts(each, noise, 0, q if each.drafts_from_quantized else exact):
        for mass, verdict in verdicts(each, noise, [x], [q], [p, p]):
            law[x if verdict.accepted else verdict.token] += share * mass
    return law


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", RULES)
def test_a_verified_token_is_a_sample_of_the_target(name: str, pair: str) -> None:
    q, p = PAIRS[pair]
    law = first_token_law(name, q, q, p.to_dense())
    assert np.allclose(law, p.to_dense(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *("topp:0.8", "topk:2:renorm", "topk:2:residual", "dense:fp16"),
        *("qs:3", "qs:7", "ksqs:2:5", "ksqs:3:100", "csqs:0.15:9", "csqs:0.3:1"),
    ],
)
@pytest.mark.parametrize("sampler", [Sampler(), Sampler(temperature=0.6), Sampler(top_k=4)])
def test_quantize_then_sample_is_exact_the_reverse_is_not(name: str, sampler: Sampler) -> None:
    """QSV Prop. 1, and its baseline's bias, after sampler and codec."""
    each = speculative_rule("rejection", Noise(0), sampler)
    shaped = each.shape(np.array([0.4, 0.25, 0.2, 0.1, 0.05, 0]))
    p = each.shape(np.array([0, 0.3, 0.1, 0.3, 0.2, 0.1]))
    coder = codec(name, 6)
    q = coder.quantize(shaped).distribution
    exact = Distribution.from_dense(shaped)
    assert np.allclose(first_token_law("rejection", exact, q, p), p, rtol=0, atol=1e-12)
    biased = first_token_law("sample-quantize", exact, q, p)
    assert biased.sum() == pytest.approx(1, abs=1e-12)
    bias = 0.5 * np.abs(biased - p).sum()
    assert bias < 1e-3 if name == "dense:fp16" else bias > 1e-2


def test_a_block_is_exact() -> None:
    """Two drafted tokens with distributions that depend on the first: the law of two tokens."""
    rng = np.random.default_rng(5)
    q = [Distribution.from_dense(row) for row in rng.dirichlet(np.full(3, 0.7), 4)]
    p = rng.dirichlet(np.full(3, 0.7), 4)  # row 3: of the first token; row x: after x
    noise = ScriptedNoise()
    each = speculative_rule("rejection", noise, Sampler())
    law, accepted, expected = np.zeros((3, 3)), 0.0, 0.0
    for share, x in drafts(each, noise, 0, q[3]):
        for next_share, y in drafts(each, noise, 1, q[x]):
            block = share * next_share
            for mass, verdict in verdicts(each, noise, [x, y], [q[3], q[x]], [p[3], p[x], p[y]]):
                accepted += block * mass * verdict.accepted
                if verdict.accepted == 0:  # the second token is of another block
                    law[verdict.token] += block * mass * p[verdict.token]
                elif verdict.accepted == 1:
                    law[x, verdict.token] += block * mass
                else:
                    law[x, y] += block * mass
            first = token_acceptance(p[3][x], q[3].probability(x))
            second = token_acceptance(p[x][y], q[x].probability(y))
            expected += block * (first + first * second)  # QSV Eq. 15
    assert np.allclose(law, p[3][:, None] * p[:3], rtol=0, atol=1e-12)
    assert accepted == pytest.approx(expected, abs=1e-12)
