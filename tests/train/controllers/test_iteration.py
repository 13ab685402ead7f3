"""The latency model of one iteration, term by term."""

import math

import pytest

from scripts.train.controllers.iteration import iteration_latency


def test_the_terms_by_hand() -> None:
    seconds = iteration_latency(
        3, 22, vocabulary=1024, draft_s=0.01, target_s=0.05, up_rate=1e3, down_rate=1e4
    )
    # 3 · 10 ms + 3 · (10 + 22) bits / 1 kbit/s + 50 ms + (10 + 2) bits / 10 kbit/s
    assert seconds == pytest.approx(0.03 + 0.096 + 0.05 + 0.0012)


def test_a_link_that_takes_no_time() -> None:
    seconds = iteration_latency(
        4, 900, vocabulary=50_257, draft_s=0.01, target_s=0.05, up_rate=math.inf, down_rate=math.inf
    )
    assert seconds == pytest.approx(0.09)
