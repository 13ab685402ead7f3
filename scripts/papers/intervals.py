"""What repeated measurements say: medians with bootstrap intervals, groups of rows. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
class Interval:
    """A statistic of `count` samples and its bootstrap 95 % interval, `low` to `high`."""

    statistic: Statistic
    value: float
    low: float
    high: float
    count: int

    def map(self, increasing: Callable[[float], float]) -> "Interval":
        """The interval of that increasing function of the statistic."""
        value, low, high = map(increasing, (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)

    def to_json(self) -> dict[str, float | int]:
        """Six significant digits, so that summaries can be read."""
        numbers = {self.statistic: self.value, "low": self.low, "high": self.high}
        rounded: dict[str, float | int] = {
            name: float(f"{value:.6g}") for name, value in numbers.items()
        }
        return rounded | {"count": self.count}


def estimate(samples: Sequence[float], statistic: Statistic = "median") -> Interval:
    """The statistic and the percentile interval of that of 2000 resamples (Efron 1979).

    The same samples give the same interval. Raises DragonError where there is no sample.
    """
    if not samples:
        raise DragonError("nothing was measured, so there is nothing to estimate")
    values = np.asarray(samples, dtype=np.float64)
    of = np.median if statistic == "median" else np.mean
    value = float(of(values))
    if values.size == 1:
        return Interval(statistic, value, value, value, 1)
    from scipy.stats import bootstrap

    random = np.random.Generator(np.random.Philox(0))
    low, high = bootstrap(
        (values,), of, n_resamples=RESAMPLES, batch=BATCH, method="percentile", rng=random
    ).confidence_interval
    return Interval(statistic, value, float(low), float(high), values.size)


def paired(statistic: Callable[..., Any], *samples: Sequence[float]) -> Interval:
    """A statistic of columns that belong together, resampled by rows (percentiles, as `estimate`).

    `statistic` takes the columns and the axis that samples lie along. A ratio of sums is one: its
    interval is not that of the mean of ratios. Raises DragonError where there is no sample.
    """
    if not samples[0]:
        raise DragonError("nothing was measured, so there is nothing to estimate")
    columns = tuple(np.asarray(each, dtype=np.float64) for each in samples)
    value = float(statistic(*columns, axis=0))
    if columns[0].size == 1:
        return Interval("mean", value, value, value, 1)
    from scipy.stats import bootstrap

    random = np.random.Generator(np.random.Philox(0))
    low, high = bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=BATCH,
        method="percentile",
        rng=random,
    ).confidence_interval
    return Interval("mean", value, float(low), float(high), columns[0].size)


def exactly(value: float) -> Interval:
    """A number that was not estimated, where an interval is wanted."""
    return Interval("mean", value, value, value, 1)


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in `columns`, in the order in which these first appear."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The values of a column, in the order in which they first appear."""
    return list(dict.fromkeys(row[column] for row in rows))


def having(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows with these values in these columns."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def mean(rows: Iterable[Row], column: str) -> float:
    """The mean of a column."""
    return float(np.mean([row[column] for row in rows]))


def estimates(
    rows: Iterable[Row], value: str, *columns: str, statistic: Statistic = "median"
) -> dict[tuple[Any, ...], Interval]:
    """The estimate of the column `value` in each group of rows; empty cells (None) do not count."""
    found = {}
    for key, group in grouped(rows, *columns).items():
        samples = [row[value] for row in group if row[value] is not None]
        if samples:
            found[key] = estimate(samples, statistic)
    return found


def averages(rows: Iterable[Row], value: str, *columns: str) -> dict[tuple[Any, ...], Interval]:
    """Return the estimate of the mean of `value` in each group of rows, as `estimates` does."""
    return estimates(rows, value, *columns, statistic="mean")
