"""Prompt lookup: what is found, and the choice between it and the draft model."""

import itertools
import random

import numpy as np
import pytest

from dragonrt.distributions import Step, codec, decode_block, encode_block
from dragonrt.modes.brute_force import looked_up
from dragonrt.modes.lookup import FORWARD_COST, Bandit, Lookup
from dragonrt.sampling.verification import residual, token_acceptance

TEXTS = [[5, 6, 7, 8, 5, 3, 6], [2, 6, 9, 6]]


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([5, 6], (2, [7, 8, 5, 3, 6])),
        ([9, 7], (1, [8, 5, 3, 6])),
        ([6], (1, [7, 8, 5, 3, 6])),  # the first of several
        ([4, 6, 1, 4, 6], (2, [1, 4, 6])),  # the answer's own comes before the texts
        ([4, 1, 6, 4, 4], (1, [4])),  # the newest
        ([2, 6, 1, 8, 6], (1, [1, 8, 6])),
        ([], (0, ())),
        ([99], (0, ())),
        ([9, 6], (1, [7, 8, 5, 3, 6])),  # nothing follows the longer match
    ],
)
def test_the_longest_match_is_followed(tokens: list[int], found: tuple[int, list[int]]) -> None:
    assert Lookup(TEXTS).find(tokens) == found


def test_a_guess_ends_before_a_stop_token_and_where_there_is_no_room() -> None:
    lookup = Lookup(TEXTS)
    for _ in range(50):  # it guesses right
        lookup.learn([5, 6], 7)
    assert lookup.guess([5, 6], 9, ()) == [7, 8, 5]
    assert lookup.guess([5, 6], 2, ()) == [7, 8]
    assert lookup.guess([5, 6], 9, (5,)) == [7, 8]
    assert lookup.guess([5, 6], 9, (7,)) == []
    assert lookup.guess([99], 9, ()) == []


def test_it_finds_what_a_plain_search_finds() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        texts = [[chance.randrange(4) for _ in range(chance.randrange(12))] for _ in range(3)]
        tokens = [chance.randrange(4) for _ in range(chance.randrange(12))]
        assert Lookup(texts).find(tokens) == looked_up(texts, tokens)


CODECS = ("qs:7", "ksqs:2:7", "csqs:0.1:7", "csqs:0:7", "dense:fp16", "topk:3:renorm", "topp:0.9")


@pytest.mark.parametrize("name", CODECS)
def test_a_certain_draft_leaves_the_law_of_the_target(name: str) -> None:
    """The law of one step, not a sample of it: p(x) of x, else the residual (QSV Eq. 1, 2)."""
    code = codec(name, 5)
    for seed, token in itertools.product(range(9), range(5)):
        p = np.random.default_rng(seed).dirichlet(np.full(5, 0.4))
        q = code.quantize(np.eye(5)[token])
        payload = encode_block(code, [token], [q])
        assert code.longest >= len(payload)
        (read,), sent = decode_block(code, payload, [Step(0)])
        assert sent is not None
        assert (read, sent[0].probability(token)) == (token, 1.0)
        accepted = token_acceptance(p[token], sent[0].probability(token))
        left = residual(p, sent[0])
        law = accepted * np.eye(5)[token] + (1 - accepted) * left / left.sum()
        assert law == pytest.approx(p, abs=1e-15)


LONGEST = 4
Source = tuple[float, float]
"""How likely a draft token of each source is accepted: the model's, one that is looked up."""


def gained(likely: Source, blocks: int, choice: Bandit | bool | None) -> float:
    """Tokens per round trip over so many blocks; True looks all up, None is the best in hindsight.

    Tokens of both sources are drawn for each block, so that all choices meet the same ones.
    """
    chance, tokens, seconds = random.Random(str(likely)), 0, 0.0
    for step in range(blocks):
        runs = []
        for share in likely:
            drawn = [chance.random() < share for _ in range(LONGEST)] + [False]
            runs.append(drawn.index(False))
        costs = 1 + FORWARD_COST * LONGEST, 1.0
        rates = [(run + 1) / cost for run, cost in zip(runs, costs, strict=True)]
        if choice is None:
            taken = rates[1] >= rates[0]
        elif isinstance(choice, bool):
            taken = choice
        else:
            taken = choice.prefers(step, 2, LONGEST, LONGEST)
            run = runs[taken]
            choice = choice.after(2 * taken, min(run + 1, LONGEST), run)
        tokens += runs[taken] + 1
        seconds += costs[taken]
    return tokens / seconds


def test_the_bandit_is_near_the_better_source() -> None:
    """And below what could be had in hindsight, by which it is measured."""
    for likely in ((0.9, 0.2), (0.9, 0.7), (0.8, 0.8), (0.5, 0.7), (0.3, 0.1)):
        alone = [gained(likely, 400, looks) for looks in (False, True)]
        chosen, hindsight = gained(likely, 400, Bandit(7)), gained(likely, 400, None)
        assert 0.95 * max(alone) < chosen < hindsight


def test_the_bandits_noise_is_keyed() -> None:
    """Equal counts choose alike at a step, whatever was asked before; not at every step."""
    taken = [Bandit(3).prefers(step, 1, 2, 4) for step in range(200)]
    one = Bandit(3)
    assert [one.prefers(step, 1, 2, 4) for step in reversed(range(200))] == taken[::-1]
    assert any(a != b for a, b in itertools.pairwise(taken))
