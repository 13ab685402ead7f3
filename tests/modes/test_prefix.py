"""Texts, the hashes that name them, and lookup: what is found, and how much of it is read along."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.modes.prefix import Lookup, TokenPrefix, extend_hash, extended, start_hash
from tests.oracles.brute_force import looked_up

tokens = st.lists(st.integers(0, 5), max_size=12)


@given(tokens, tokens, st.integers(0, 2**64 - 1))
def test_a_hash_names_the_tokens_and_the_seed(a: list[int], b: list[int], seed: int) -> None:
    first, second = TokenPrefix(start_hash(seed), a), TokenPrefix(start_hash(seed), b)
    assert (first.hash == second.hash) == (a == b)
    assert TokenPrefix(start_hash(seed ^ 1), a).hash != first.hash
    assert 0 <= first.hash < 2**64
    assert extended(first.hashes, b) == TokenPrefix(start_hash(seed), [*a, *b]).hashes


@given(tokens, st.data())
def test_a_cut_line_is_the_line_of_fewer_tokens(a: list[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(a)))
    line = TokenPrefix(start_hash(0), a)
    line.replace_from(length, [7])
    assert line.tokens == [*a[:length], 7]
    assert line.hashes == TokenPrefix(start_hash(0), [*a[:length], 7]).hashes
    assert line.hash == extend_hash(line.hashes[length], 7)


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


def test_a_guess_ends_before_a_stop_token_or_without_room() -> None:
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
