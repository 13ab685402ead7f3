"""Prompt lookup: what is found, and how much of it is read along."""

import itertools
import random

import numpy as np
import pytest

from dragonrt.distributions import Step, codec, decode_block, encode_block
from dragonrt.modes.prefix import Lookup
from dragonrt.sampling.rules import residual, token_acceptance
from tests.oracles.brute_force import looked_up

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
    assert lookup.guess([5, 6], 9, ()) == [7, 8, 5]
    assert lookup.guess([5, 6], 2, ()) == [7, 8]
    assert lookup.guess([5, 6], 9, (5,)) == [7, 8]
    assert lookup.guess([5, 6], 9, (7,)) == []
    assert lookup.guess([99], 9, ()) == []
    assert lookup.guess([8, 6], 9, ()) == [], "one token says too little"


@pytest.mark.parametrize(("rows", "guessed"), [(1, 3), (2, 1), (3, 0), (4, 0), (9, 0)])
def test_a_guess_fits_into_one_product(rows: int, guessed: int) -> None:
    assert len(Lookup(TEXTS, rows).guess([5, 6], 9, ())) == guessed


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
