"""What repeated measurements say: medians with bootstrap intervals, groups of rows. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dragonrt.errors import DragonError

RESAMPLES = 2000
BATCH = 100
"""Resamples at a time: bounds the memory."""

Row = dict[str, Any]
"""One measured sample: plain scalars by column."""

Statistic = Literal["median", "mean"]
"""What stands for many samples: the median of times, the mean of rates."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of `count` samples and its bootstrap 95 % interval."""

    statistic: Statistic
    value: float
    low: float
    high: float
    count: int

    def to_json(self) -> dict[str, float | int]:
        """Six significant digits, so that summaries can be read."""
        numbers = {self.statistic: self.value, "low": self.low, "high": self.high}
        rounded: dict[str, float | int] = {
            name: float(f"{value:.6g}") for name, value in numbers.items()
        }
        return rounded | {"count": self.count}


def estimate(samples: Sequence[float], statistic: Statistic = "median", seed: int = 0) -> Estimate:
    """The statistic and the percentile interval of that of 2000 resamples (Efron 1979).

    The same samples give the same interval. Raises DragonError where there is no sample.
    """
    if not samples:
        raise DragonError("nothing was measured, so there is nothing to estimate")
    values = np.asarray(samples, dtype=np.float64)
    random = np.random.Generator(np.random.Philox(seed))
    of = np.median if statistic == "median" else np.mean
    drawn = [
        of(values[random.integers(values.size, size=(BATCH, values.size))], axis=1)
        for _ in range(RESAMPLES // BATCH)
    ]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Estimate(statistic, float(of(values)), float(low), float(high), values.size)


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in `columns`, in the order in which these first appear."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def estimates(
    rows: Iterable[Row], value: str, *columns: str, statistic: Statistic = "median"
) -> dict[tuple[Any, ...], Estimate]:
    """The estimate of the column `value` in each group of rows; empty cells (None) do not count."""
    found = {}
    for key, group in grouped(rows, *columns).items():
        samples = [row[value] for row in group if row[value] is not None]
        if samples:
            found[key] = estimate(samples, statistic)
    return found
