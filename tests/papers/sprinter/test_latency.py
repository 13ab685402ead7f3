"""`sprinter-latency`: exact methods are exact, nothing beats physics, and origins are known."""

import pytest

from dragonrt.traces.events import Cause, TokenDecided
from scripts.papers.sprinter.latency import (
    CONFIRMED,
    OWN,
    PASSED,
    REPLACED,
    origin,
)


@pytest.mark.parametrize(
    ("stands", "cause", "expected"),
    [
        (True, "own", PASSED),
        (True, "target", CONFIRMED),
        (False, "target", REPLACED),
        (None, "target", OWN),
    ],
)
def test_the_origin_of_a_token(stands: bool | None, cause: Cause, expected: str) -> None:
    assert origin(TokenDecided(0, 7, stands, None, cause, 0.0, 1.0)) == expected
