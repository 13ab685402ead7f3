"""Estimate decoding delays and acceptance: pure estimators (DRAGON §5.2, SPEC 1.4).

The network part is estimated in `dragonrt.link.probe` and `dragonrt.control.round_trip`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from dragonrt.control.scheduler import Estimate
from dragonrt.side import Side, other

SMOOTHING = 0.1
"""ζ: the weight of the newest sample in every moving average."""


ANCHORS = 3
"""Real forwards of an answer whose mean delay sets the intercept k_c, which is frozen then."""

PRIOR_STEP = 16
"""What is known of the slope before an answer weighs like a sample at this step of it."""


@dataclass(slots=True)
class DecodeProfile:
    """The decoding delay of one draft: ĉ(t) = (k_a / k_b)·t + k_c seconds.

    In an answer t is the draft's step, the tokens that the answer has before it. An offline profile
    is measured over whole contexts, and counts t from their beginning: see `behind`.
    """

    k_a: float
    k_b: float
    k_c: float

    @classmethod
    def fit(cls, lengths: Sequence[float], delays_s: Sequence[float]) -> "DecodeProfile":
        """The least-squares line through offline samples (t, seconds)."""
        t = np.asarray(lengths, dtype=np.float64)
        delay = np.asarray(delays_s, dtype=np.float64)
        spread = t - t.mean()
        k_b = float((spread**2).mean())
        slope = float((spread * delay).mean()) / k_b if k_b > 0 else 0.0
        k_c = float(delay.mean() - slope * t.mean())
        k_b = max(float((t**2).mean()), 1.0)
        return cls(k_a=slope * k_b, k_b=k_b, k_c=k_c)

    def behind(self, context: int) -> "DecodeProfile":
        """The same line, t counted from the end of `context` tokens: the documents and the prompt.

        Its slope weighs as PRIOR_STEP says, however long the contexts that it was measured on.
        """
        slope = self.k_a / self.k_b
        return DecodeProfile(slope * PRIOR_STEP**2, PRIOR_STEP**2, self.predict(context))

    def predict(self, step: float) -> float:
        """ĉ(t) in seconds."""
        return max(self.k_a / self.k_b * step + self.k_c, 0.0)

    def update(self, step: int, delay_s: float) -> None:
        """Take in one measured delay: k_c is frozen, the slope follows (SPEC 1.4)."""
        self.k_a = (1 - SMOOTHING) * self.k_a + SMOOTHING * (delay_s - self.k_c) * step
        self.k_b = (1 - SMOOTHING) * self.k_b + SMOOTHING * step * step

    def to_json(self) -> dict[str, float]:
        return asdict(self)


class DecodeDelay:
    """What a draft of one side takes in this answer, if anything is known of it.

    The first ANCHORS samples move the line, its slope kept, to where they lie: the machine may be
    under another load than when it was profiled, and it may never have been.
    """

    def __init__(self, profile: DecodeProfile | None = None) -> None:
        """`profile` counts t from the beginning of the answer."""
        self.profile = profile
        self._anchors: list[tuple[int, float]] = []

    def took(self, step: int, delay_s: float) -> None:
        """Take in what a draft of that step took. It must have needed a forward of its own."""
        if self.profile is None:
            self.profile = DecodeProfile(0.0, PRIOR_STEP**2, delay_s)
        if len(self._anchors) == ANCHORS:
            self.profile.update(step, delay_s)
            return
        self._anchors.append((step, delay_s))
        slope = self.profile.k_a / self.profile.k_b
        self.profile.k_c = sum(each_s - slope * at for at, each_s in self._anchors) / len(
            self._anchors
        )


class Estimates:
    """Running estimates of both sides' decoding delays.

    Both sides have the same, as they tell each other their profiles and what their drafts took.
    """

    def __init__(self) -> None:
        self._delays: dict[Side, DecodeDelay] = {"device": DecodeDelay(), "cloud": DecodeDelay()}

    def profile(self, side: Side) -> DecodeProfile | None:
        """Return the line along which drafts of `side` are expected, if any is known."""
        return self._delays[side].profile

    def profiled(self, side: Side, profile: DecodeProfile) -> None:
        """Set the decode profile of `side`; t is the step."""
        self._delays[side] = DecodeDelay(profile)

    def decoded(self, side: Side, step: int, decode_s: float) -> None:
        """Add a draft of `side` that took `decode_s` seconds; 0: it needed no forward."""
        if decode_s > 0:
            self._delays[side].took(step, decode_s)

    def for_scheduling(self, step: int, rtt_s: float, acceptance: dict[Side, float]) -> Estimate:
        """Return what the scheduler needs after a step."""
        decode_s = {side: self._decode_s(side, step) for side in self._delays}
        return Estimate(decode_s=decode_s, acceptance=acceptance.copy(), rtt_s=rtt_s)

    def _decode_s(self, side: Side, step: int) -> float:
        """Expect an unknown side to be as fast as the other: that decides nothing."""
        profile = self.profile(side) or self.profile(other(side))
        return profile.predict(step + 1) if profile is not None else 0.0
