"""Drafts: found by step and prefix hash only, and bounded."""

from hypothesis import given
from hypothesis import strategies as st

from dragonrt.modes.dragon.drafts import BYTES_PER_STEP, PREFIXES_PER_STEP, DraftQueue, SideDraft


def draft(step: int, prefix_hash: int, token: int = 1, payload: bytes = b"") -> SideDraft:
    return SideDraft(step, prefix_hash, token, payload, 0.0, 0.0)


def test_drafts_are_found_by_step_and_hash_only() -> None:
    queue = DraftQueue(window=8)
    queue.put(draft(3, 111))
    assert queue.get(3, 111) == draft(3, 111)
    assert queue.get(3, 222) is None
    assert queue.get(2, 111) is None


def test_decided_steps_are_dropped_and_late_drafts_with_them() -> None:
    queue = DraftQueue(window=8)
    queue.put(draft(0, 5))
    queue.decide(0)
    assert queue.get(0, 5) is None
    queue.put(draft(0, 5))
    assert queue.get(0, 5) is None


def test_the_window_moves_with_the_decided_prefix() -> None:
    queue = DraftQueue(window=2)
    assert queue.end > 1
    assert queue.end <= 2
    queue.decide(0)
    assert queue.end > 2
    queue.clear()
    assert queue.end > 2
    assert queue.end <= 3
    assert DraftQueue(window=2, decided=7).end > 8


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=200))
def test_a_queue_is_bounded_and_keeps_the_newest_lines(puts: list[tuple[int, int]]) -> None:
    queue = DraftQueue(window=10)
    for step, prefix_hash in puts:
        queue.put(draft(step, prefix_hash))
    for step in range(10):
        newest = list(dict.fromkeys(h for s, h in reversed(puts) if s == step))
        for prefix_hash in newest[:PREFIXES_PER_STEP]:
            assert queue.get(step, prefix_hash) is not None
        for prefix_hash in newest[PREFIXES_PER_STEP:]:
            assert queue.get(step, prefix_hash) is None


def test_of_long_drafts_a_step_keeps_fewer_and_always_the_newest() -> None:
    queue = DraftQueue(window=8)
    third = bytes(BYTES_PER_STEP // 3)
    for number in range(5):
        queue.put(draft(2, number, payload=third))
    assert [number for number in range(5) if queue.get(2, number)] == [2, 3, 4]
    queue.put(draft(2, 9, payload=bytes(2 * BYTES_PER_STEP)))
    assert [number for number in (2, 3, 4, 9) if queue.get(2, number)] == [9]
    queue.put(draft(2, 1))
    assert [number for number in (1, 9) if queue.get(2, number)] == [1]
