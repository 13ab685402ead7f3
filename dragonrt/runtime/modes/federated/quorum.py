"""Who takes part in a round, with which weight, and how long it waits (SPEC 3). Pure."""

from collections import deque
from collections.abc import Sequence
from statistics import median

from dragonrt.runtime.modes.federated.plan import Weighing
from dragonrt.sampling.federated import relevance_weights, renormalise

LEAST_DEADLINE_S = 1.0
DEADLINE_FACTOR = 4.0
REMEMBERED_ROUNDS = 16


class RoundTrips:
    """How long one worker took from a block to its upload, in its newest rounds.

    Uploads that come after a round's deadline count, too: who is slow once is left out once, who
    is always slow is waited for.
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED_ROUNDS)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    @property
    def median_s(self) -> float:
        """0 where nothing was measured yet."""
        return median(self._seconds) if self._seconds else 0.0


def deadline_s(workers: Sequence[RoundTrips]) -> float:
    """How long to wait for these workers where nobody said: four times the slowest median."""
    slowest = max((worker.median_s for worker in workers), default=0.0)
    return max(LEAST_DEADLINE_S, DEADLINE_FACTOR * slowest)


def round_weights(
    weighing: Weighing, weights: Sequence[float], relevances: Sequence[float | None]
) -> tuple[float, ...]:
    """The weights of a round, 0 for each worker whose relevance is None: it is not there.

    Raises SamplingError where none of them is.
    """
    present = [relevance is not None for relevance in relevances]
    if weighing == "fixed":
        return renormalise(weights, present)
    found = iter(relevance_weights([h for h in relevances if h is not None]))
    return tuple(next(found) if here else 0.0 for here in present)
