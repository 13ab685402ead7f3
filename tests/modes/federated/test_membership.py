"""Who takes part in a federated round, and how long it waits."""

import itertools

import numpy as np
import pytest

from dragonrt.errors import SamplingError
from dragonrt.modes.federated.workers import LEAST_DEADLINE_S, deadline_s, round_weights


def test_the_weights_of_those_present() -> None:
    assert round_weights("fixed", (0.5, 0.3, 0.2), (0.0, None, 9.0)) == pytest.approx(
        (5 / 7, 0, 2 / 7)
    )
    for present in itertools.product([True, False], repeat=3):
        relevances = [h if here else None for h, here in zip((0.0, 1.0, 2.0), present, strict=True)]
        if not any(present):
            with pytest.raises(SamplingError):
                round_weights("relevance", (1, 1, 1), relevances)
            continue
        weights = round_weights("relevance", (1, 1, 1), relevances)
        expected = [np.exp(h) if h is not None else 0.0 for h in relevances]
        assert weights == pytest.approx(np.array(expected) / sum(expected), abs=1e-12)


def test_the_deadline_follows_the_slowest_median() -> None:
    quick, slow = [0.1], [0.5, 0.6, 40.0]  # one slip leaves the median where it was
    assert deadline_s([[], []]) == LEAST_DEADLINE_S
    assert deadline_s([quick, slow]) == pytest.approx(2.4)
    assert deadline_s([quick, []]) == LEAST_DEADLINE_S
