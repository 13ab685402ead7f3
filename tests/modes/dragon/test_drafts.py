"""Drafts: found by step and prefix hash only, and bounded."""

import random

from hypothesis import given
from hypothesis import strategies as st

from dragonrt.modes.dragon.drafts import (
    BYTES_PER_STEP,
    PREFIXES_PER_STEP,
    DraftQueue,
    Redacted,
)
from dragonrt.modes.prefix import TokenPrefix
from dragonrt.privacy.disclosure import redacted
from dragonrt.privacy.evidence import SideDraft
from tests.oracles.dragon import read_by_cloud


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


MARKER = (3, 4)


def test_the_place_ahead_follows_the_line_wherever_it_goes() -> None:
    """Nothing may be left there of a text that the line went along before."""
    chance = random.Random(5)
    line, decisions = TokenPrefix(0), list[tuple[int, bool]]()
    told = Redacted(line, TokenPrefix(0), 0, MARKER)
    for _ in range(300):
        if len(line) == len(decisions) or chance.random() < 0.5:
            line.append(chance.randrange(3))
        else:
            line.replace_from(chance.randrange(len(decisions), len(line)), [chance.randrange(3)])
        for step in range(len(decisions), len(line) + 1):
            ahead = line.tokens[len(decisions) : step]
            read = TokenPrefix(0, [*read_by_cloud(decisions, MARKER), *ahead])
            assert told.place(step) == (len(read), read.hash)
        if chance.random() < 0.2:
            decisions.append((line.tokens[len(decisions)], chance.random() < 0.4))
            told.append(*decisions[-1])
            assert told.prefix.tokens[: told.length] == redacted(decisions, MARKER)
            assert redacted(decisions, MARKER) == read_by_cloud(decisions, MARKER)
