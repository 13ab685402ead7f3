"""Texts and the hashes that name them."""

from hypothesis import given
from hypothesis import strategies as st

from dragonrt.modes.prefix import TokenPrefix, extend_hash, extended, start_hash

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
