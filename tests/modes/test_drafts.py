"""Drafts: found by step and prefix hash only, bounded, and what two of them come to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.distributions import CodecError, Step, codec, encode_distribution
from dragonrt.modes.drafts import LINES_PER_STEP, DraftQueue, SideDraft, decoded, mixed
from dragonrt.sampling.aggregation import rule
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler


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
    assert len(queue) == 0
    queue.put(draft(0, 5))
    assert len(queue) == 0


def test_the_window_moves_with_the_decided_prefix() -> None:
    queue = DraftQueue(window=2)
    assert queue.reaches(1)
    assert not queue.reaches(2)
    queue.decide(0)
    assert queue.reaches(2)
    queue.clear()
    assert queue.reaches(2)
    assert not queue.reaches(3)
    assert DraftQueue(window=2, decided=7).reaches(8)


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


def test_a_step_is_mixed_from_two_decoded_drafts() -> None:
    """The share is the device's part of the target's probability; Eq. 5 only where it is wanted."""
    by = rule("coupled", Noise(0), Sampler(0.0))
    code = codec("dense:fp32", 3)

    def of(p: list[float], relevance: float) -> SideDraft:
        quantized = code.quantize(np.array(p), Step(2))
        payload = encode_distribution(code, quantized)
        return SideDraft(2, 9, int(np.argmax(p)), payload, relevance, 0.0)

    device, cloud = of([0.5, 0.1, 0.4], 0.0), of([0.1, 0.3, 0.6], float(np.log(3)))
    with pytest.raises(ValueError, match="not decoded"):
        mixed(by, 2, device, cloud)
    both = decoded(code, device), decoded(code, cloud)
    found = mixed(by, 2, *both, expects=True)
    assert found.token == 2  # 0.25 * 0.4 + 0.75 * 0.6
    assert found.share == pytest.approx(0.1 / 0.55, abs=1e-6)
    assert found.expected is not None
    assert mixed(by, 2, *both).expected is None
    with pytest.raises(CodecError):
        decoded(code, draft(2, 9, payload=b"\xff\xff"))
