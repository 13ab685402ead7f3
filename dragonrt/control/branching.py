"""How many likely alternatives are worth drafting beside the line (SPEC 1.9). Pure.

An alternative that becomes the target saves the wait for drafts behind it, about a one-way delay.
It costs the added time of a forward of one more row, and the time in which the link carries one
more draft. All are measured, so a side whose forwards grow as fast as their rows drafts none.
"""

MOST = 4
"""Alternatives that `auto` drafts at most."""
PRIOR = (0.8, 0.1, 0.04, 0.02, 0.01)
"""How often the target is the own race's best token, the second, …, before anything is seen."""
PRIOR_STEPS = 10.0
EXPLORE = 24
"""Forwards after which one more row is tried, where it is not known what that costs."""
SMOOTHING = 0.2


class Branching:
    """Measurements of one answer, and the number that follows; `fixed` alternatives if given."""

    def __init__(self, fixed: int | None) -> None:
        self._fixed = fixed
        self._steps = PRIOR_STEPS
        self._ranks = [PRIOR_STEPS * each for each in PRIOR]
        self._single_s: float | None = None
        self._row_s: float | None = None
        self._draft_bits: float | None = None
        self._forwards = 0

    @property
    def on(self) -> bool:
        """Whether there may ever be alternatives."""
        return self._fixed != 0

    def wants_rate(self, rtt_s: float) -> bool:
        """Whether the number of alternatives may depend on the link's rate."""
        return self._fixed is None and self._saves(rtt_s)

    def decided(self, rank: int | None) -> None:
        """Add a target's rank in the own race: 0 is the draft, None no token of it."""
        self._steps += 1
        if rank is not None and rank < len(self._ranks):
            self._ranks[rank] += 1

    def took(self, alternatives: int, seconds: float) -> None:
        """Add a forward over the prefix and so many alternatives that took `seconds`."""
        self._forwards += 1
        if not alternatives:
            self._single_s = _smoothed(self._single_s, seconds)
        elif self._single_s is not None:
            row_s = max(0.0, seconds - self._single_s) / alternatives
            self._row_s = _smoothed(self._row_s, row_s)

    def sent(self, size: int) -> None:
        """Add a draft of `size` bytes."""
        self._draft_bits = _smoothed(self._draft_bits, 8 * size)

    def count(self, rtt_s: float, bits_per_s: float | None) -> int:
        """Return the alternatives of the next forward; an unknown rate (bit/s) costs nothing."""
        if self._fixed is not None:
            return self._fixed
        if self._single_s is None or not self._saves(rtt_s):
            return 0
        draft_s, most = 0.0, MOST
        if self._draft_bits is not None and bits_per_s:
            draft_s = self._draft_bits / bits_per_s
            most = min(MOST, int(self._single_s / draft_s) - 1)
        if most > 0 and (self._row_s is None or self._forwards % EXPLORE == 0):
            return 1
        cost_s = (self._row_s or 0.0) + draft_s
        saved_s = rtt_s / 2 + self._single_s
        worth = [rank / self._steps * saved_s > cost_s for rank in self._ranks[1 : most + 1]]
        return worth.index(False) if False in worth else max(0, most)

    def _saves(self, rtt_s: float) -> bool:
        """Whether a wait for drafts is longer than a forward."""
        return self._single_s is not None and rtt_s / 2 > self._single_s


def _smoothed(before: float | None, sample: float) -> float:
    return sample if before is None else before + SMOOTHING * (sample - before)
