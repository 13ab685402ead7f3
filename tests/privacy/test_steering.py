"""Whether a cloud steers: what counts against it, and what an honest one may say."""

import numpy as np
import pytest

from dragonrt.distributions import Distribution
from dragonrt.modes.dragon.drafts import SideDraft
from dragonrt.privacy.guards import STEERED, Steering

V, OWN, THEIRS, CARRIED = 8, 1, 2, (3, 4)


def draft(step: int, token: int, kept: float = 0.0) -> SideDraft:
    """A draft of a side that is sure of a token."""
    p = np.full(V, 1e-6)
    p[token] = 1 - (V - 1) * 1e-6
    return SideDraft(step, 0, token, b"", 0.0, 0.0, Distribution.from_dense(p), kept=kept)


@pytest.mark.parametrize(("kept", "ends"), [(-40.0, False), (-6.0, True), (0.0, True)])
def test_a_number_that_the_device_does_not_hold_is_no_steering(kept: float, ends: bool) -> None:
    """Behind it all of its documents have lost their weight; a name or words cost them less."""
    guard = Steering()
    assert not guard.ruling(THEIRS, draft(0, OWN), draft(0, THEIRS), None).ends
    rulings = [
        guard.ruling(token, draft(step, token, kept if step == 1 else 0.0), draft(step, OWN), None)
        for step, token in enumerate(CARRIED, start=1)
    ]
    assert [each.ends for each in rulings] == ([STEERED, STEERED] if ends else [None, None])
