"""The round trip as an answer's own messages measure it, at every step (DRAGON §5.2, SPEC 1.4).

Each message carries two times in microseconds since its side began: when it was sent, and an echo,
the newest time of the other side plus how long it was held here. So no clocks are compared.
"""


class RoundTrip:
    """One side's part: `seconds` is the newest round trip, None before the first echo."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._began_s = 0.0
        self._theirs: tuple[int, float] | None = None

    def begin(self, now: float) -> None:
        """A new session: what was on the way in the one before is lost."""
        self._began_s, self._theirs, self.seconds = now, None, None

    def stamp(self, now: float) -> tuple[int, int]:
        """The two times of a message that leaves now; an echo of 0 is none."""
        echo_us = 0
        if self._theirs is not None:
            stamp_us, arrived_s = self._theirs
            echo_us = stamp_us + _us(now - arrived_s)
        return _us(now - self._began_s) + 1, echo_us

    def heard(self, time_us: int, echo_us: int, now: float) -> None:
        """The times of a message that came just now; a time of 0 is none."""
        if time_us:
            self._theirs = time_us, now
        elapsed_us = _us(now - self._began_s) + 1
        if 0 < echo_us <= elapsed_us:  # what cannot be true is no sample
            self.seconds = (elapsed_us - echo_us) / 1e6


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
