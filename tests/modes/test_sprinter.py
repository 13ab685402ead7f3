"""Approximate verification: Theorems 1 - 3 on the mode's own parts, and what travels."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.control.trained import TokenVerifier
from dragonrt.modes.blocks import ReadBlock
from dragonrt.modes.mode import ModeError
from dragonrt.modes.question import Question
from dragonrt.modes.sprinter import (
    SprinterDrafting,
    SprinterJudging,
    SprinterResources,
    SprinterSettings,
)
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import SimulatedPrediction
from scripts.papers.sprinter.theory import KnownRates, Lockstep
from scripts.papers.theory import expected_run_length, stopping_time

V = 8
RNG = np.random.default_rng(11)
P, Q = RNG.dirichlet(np.full(V, 0.8), 2).astype(np.float32)
QUESTION = Question(seed=0, sampler=Sampler(1.0), max_tokens=64)
SETTINGS = SprinterSettings(codec="dense:fp32")


class Constant(TokenVerifier):
    """A verifier that says the same of every token."""

    threshold = 0.5

    def __init__(self, says: float) -> None:
        self._says = says

    @override
    def probability(
        self, hidden: NDArray[np.float32], q: NDArray[np.floating[Any]], token: int
    ) -> float:
        return self._says


def resources(verifier: TokenVerifier) -> SprinterResources:
    return SprinterResources(vocabulary=V, verifier=verifier)


def said(p: NDArray[np.floating[Any]], q: NDArray[np.floating[Any]]) -> list[SimulatedPrediction]:
    return [SimulatedPrediction(q.astype(np.float32), 0.0, p.astype(np.float32))]


def draft(one: SprinterDrafting) -> Any:
    return one.take_draft(one.postprocess(math.inf)(said(P, Q)))


@pytest.mark.slow
@pytest.mark.parametrize("eta_tp", [0.6, 0.9])
@pytest.mark.parametrize("eta_fp", [0.1, 0.5])
def test_theorems_2_and_3_by_simulation(eta_tp: float, eta_fp: float) -> None:
    """`r` acceptable tokens, then unacceptable ones: tokens until the verifier refuses one."""
    r, runs = 4, 1000
    unacceptable = np.array([0.5, *np.full(V - 1, 0.5 / (V - 1))])
    only_first = np.eye(V)[0]
    verifier = KnownRates(eta_tp, eta_fp, seed=0)
    lengths = []
    for seed in range(runs):
        question, settings = replace(QUESTION, seed=seed), replace(SETTINGS, run_length=256)
        one = SprinterDrafting(question, settings, resources(verifier))
        forwards = 0
        while one.ready:
            p, q = (Q, Q) if forwards < r else (unacceptable, only_first)
            one.take_draft(one.postprocess(math.inf)(said(p, q)))
            forwards += 1
        lengths.append(one.decided)
        assert forwards == one.decided + 1
    error = float(np.std(lengths)) / math.sqrt(runs)
    mean = float(np.mean(lengths))
    assert abs(mean - expected_run_length(eta_tp, eta_fp, r)) < 4 * error
    assert abs(0.02 * (mean + 1) - stopping_time(0.02, eta_tp, eta_fp, r)) < 4 * 0.02 * error


def test_a_run_ends_at_its_cap() -> None:
    text = Lockstep(QUESTION, replace(SETTINGS, run_length=4), V, Constant(1.0))
    called = [text.next(P, Q).called for _ in range(12)]
    assert called == [False, False, False, True] * 3


def test_a_block_carries_the_run_and_one_token_to_verify() -> None:
    one = SprinterDrafting(QUESTION, replace(SETTINGS, run_length=3), resources(Constant(1.0)))
    for _ in range(2):
        passed = draft(one)
        assert passed.block is None
        assert [each.accepted for each in passed.decided] == [True]
    block = draft(one).block
    assert not one.ready
    assert (block.step, block.count, one.decided) == (2, 1, 2)
    assert list(block.decided) == one.prefix.tokens[:2]
    advance = one.take_verdict(1, one.prefix.tokens[2])
    assert (one.decided, advance.decided[0].accepted) == (3, True)
    for _ in range(2):
        draft(one)
    assert len(draft(one).block.decided) == 2, "the cloud knows what is before"
    token = (one.prefix.tokens[5] + 1) % V
    assert one.take_verdict(0, token).decided[0].accepted is False
    assert one.prefix.tokens[5] == token


def test_who_comes_back_begins_with_all_that_is_decided() -> None:
    one = SprinterDrafting(QUESTION, replace(SETTINGS, run_length=3), resources(Constant(1.0)))
    for _ in range(3):
        draft(one)
    one.rewind()
    assert len(one.prefix) == one.decided == 2
    one.decide_alone(one.postprocess_alone()(said(P, Q)))
    one.rewind()
    block = draft(one).block
    assert (block.step, block.decided) == (3, ())


def test_the_settings_threshold_comes_before_the_verifiers() -> None:
    for threshold, asks in ((None, False), (0.8, True), (0.3, False)):
        settings = replace(SETTINGS, threshold=threshold)
        one = SprinterDrafting(QUESTION, settings, resources(Constant(0.6)))
        assert (draft(one).block is not None) is asks


def test_impossible_verdicts() -> None:
    one = SprinterDrafting(QUESTION, SETTINGS, resources(Constant(0.0)))
    with pytest.raises(ModeError):
        one.take_verdict(0, 0)
    draft(one)
    drafted = one.prefix.tokens[0]
    for accepted, token in ((0, drafted), (1, (drafted + 1) % V)):
        with pytest.raises(ModeError):
            one.take_verdict(accepted, token)


def test_a_block_without_its_distribution_is_refused() -> None:
    judging = SprinterJudging(QUESTION, SETTINGS, SprinterResources(vocabulary=V))
    with pytest.raises(ModeError):
        judging.answer(ReadBlock(0, [1], None), said(P, Q))
