"""What a side knows of decoding delays and acceptance: pure estimators (DRAGON §5.2, SPEC 1.4).

The network part, round trip and bandwidth, is estimated in `dragonrt.link.probe`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

SMOOTHING = 0.1
"""ζ: the weight of the newest sample in every moving average."""


@dataclass(slots=True)
class DecodeProfile:
    """The decoding delay of one draft at context length t: ĉ(t) = (k_a / k_b)·t + k_c seconds."""

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

    @classmethod
    def flat(cls, delay_s: float) -> "DecodeProfile":
        """A profile that starts from one measurement, for a side without an offline profile."""
        return cls(k_a=0.0, k_b=1.0, k_c=delay_s)

    def predict(self, length: int) -> float:
        """ĉ(t) in seconds at context length `length`."""
        return max(self.k_a / self.k_b * length + self.k_c, 0.0)

    def update(self, length: int, delay_s: float) -> None:
        """Take in one measured delay: k_c is frozen, the slope follows (SPEC 1.4)."""
        self.k_a = (1 - SMOOTHING) * self.k_a + SMOOTHING * (delay_s - self.k_c) * length
        self.k_b = (1 - SMOOTHING) * self.k_b + SMOOTHING * length * length

    def to_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(slots=True)
class AcceptanceRate:
    """A moving average of how often a side's drafts become target tokens; starts undecided."""

    value: float = 0.5

    def update(self, sample: float) -> None:
        """Take in one sample: the expected acceptance of Eq. 5, or 1 / 0 for what happened."""
        self.value = (1 - SMOOTHING) * self.value + SMOOTHING * sample
