"""Prefix hashes, lines and draft queues."""

from hypothesis import given
from hypothesis import strategies as st

from dragonrt.runtime.draft import Draft, Line, extend_hash, start_hash
from dragonrt.runtime.queues import LINES_PER_STEP, DraftQueue

tokens = st.lists(st.integers(0, 5), max_size=12)


def draft(step: int, prefix_hash: int, token: int = 1) -> Draft:
    return Draft(step, prefix_hash, token, b"", 0.0, 0.0)


@given(tokens, tokens, st.integers(0, 2**64 - 1))
def test_a_hash_names_the_tokens_and_the_seed(a: list[int], b: list[int], seed: int) -> None:
    first, second = Line(start_hash(seed), a), Line(start_hash(seed), b)
    assert (first.hash == second.hash) == (a == b)
    assert Line(start_hash(seed ^ 1), a).hash != first.hash
    assert 0 <= first.hash < 2**64


@given(tokens, st.data())
def test_a_cut_line_is_the_line_of_fewer_tokens(a: list[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(a)))
    line = Line(start_hash(0), a)
    line.replace_from(length, [7])
    assert line.tokens == [*a[:length], 7]
    assert line.hashes == Line(start_hash(0), [*a[:length], 7]).hashes
    assert line.hash == extend_hash(line.hashes[length], 7)


def test_drafts_are_found_by_step_and_hash_only() -> None:
    queue = DraftQueue(window=8)
    assert queue.put(draft(3, 111))
    assert queue.get(3, 111) == draft(3, 111)
    assert queue.get(3, 222) is None
    assert queue.get(2, 111) is None


def test_decided_steps_are_dropped_and_late_drafts_with_them() -> None:
    queue = DraftQueue(window=8)
    queue.put(draft(0, 5))
    queue.decide(0)
    assert len(queue) == 0
    assert queue.put(draft(0, 5))
    assert len(queue) == 0


def test_the_window_moves_with_the_decided_prefix() -> None:
    queue = DraftQueue(window=2)
    assert queue.put(draft(1, 5))
    assert not queue.put(draft(2, 5))
    queue.decide(0)
    assert queue.put(draft(2, 5))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=200))
def test_a_queue_is_bounded_and_keeps_the_newest_lines(puts: list[tuple[int, int]]) -> None:
    queue = DraftQueue(window=10)
    for step, prefix_hash in puts:
        queue.put(draft(step, prefix_hash))
    assert len(queue) <= 10 * LINES_PER_STEP
    for step in range(10):
        newest = list(dict.fromkeys(h for s, h in reversed(puts) if s == step))
        for prefix_hash in newest[:LINES_PER_STEP]:
            assert queue.get(step, prefix_hash) is not None
        for prefix_hash in newest[LINES_PER_STEP:]:
            assert queue.get(step, prefix_hash) is None
