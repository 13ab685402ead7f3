"""How many likely alternatives are worth drafting beside the line (SPEC 1.9). Pure.

An alternative that the target lands on saves the wait for drafts along it, about a one-way delay;
it costs what a forward of one more row takes longer. Both are measured: a side whose forwards grow
as fast as their rows drafts none.
"""

from collections.abc import Sequence

MOST = 4
"""Alternatives that `auto` drafts at most."""
PRIOR = (0.8, 0.1, 0.04, 0.02, 0.01)
"""How often the target is the own race's best token, the second, …, before anything is seen."""
PRIOR_STEPS = 10.0
EXPLORE = 24
"""Forwards after which one more row is tried, where it is not known what that costs."""
SMOOTHING = 0.2


class Branching:
    """What was seen of one answer, and what follows from it; `fixed` alternatives if given."""

    def __init__(self, fixed: int | None) -> None:
        self._fixed = fixed
        self._steps = PRIOR_STEPS
        self._ranks = [PRIOR_STEPS * each for each in PRIOR]
        self._single_s: float | None = None
        self._row_s: float | None = None
        self._forwards = 0

    @property
    def on(self) -> bool:
        """Whether there may ever be alternatives."""
        return self._fixed != 0

    @property
    def probabilities(self) -> Sequence[float]:
        """That the target is the own race's best token, the second best, and so on."""
        return [each / self._steps for each in self._ranks]

    def decided(self, rank: int | None) -> None:
        """A target was the own race's token of that rank, 0 being the draft, or none of them."""
        self._steps += 1
        if rank is not None and rank < len(self._ranks):
            self._ranks[rank] += 1

    def took(self, alternatives: int, seconds: float) -> None:
        """A forward over one prefix of the line and so many alternatives took `seconds`."""
        self._forwards += 1
        if not alternatives:
            self._single_s = _smoothed(self._single_s, seconds)
        elif self._single_s is not None:
            row_s = max(0.0, seconds - self._single_s) / alternatives
            self._row_s = _smoothed(self._row_s, row_s)

    def count(self, rtt_s: float) -> int:
        """How many alternatives the next forward should have."""
        if self._fixed is not None:
            return self._fixed
        if self._single_s is None or rtt_s / 2 <= self._single_s:
            return 0
        if self._row_s is None or self._forwards % EXPLORE == 0:
            return 1
        saved_s = rtt_s / 2 + self._single_s
        worth = [each * saved_s > self._row_s for each in self.probabilities[1 : MOST + 1]]
        return worth.index(False) if False in worth else MOST


def _smoothed(before: float | None, seconds: float) -> float:
    return seconds if before is None else before + SMOOTHING * (seconds - before)
