"""Statistics of repeated measurements: medians with bootstrap intervals, groups of rows. Pure."""

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
"""The median of times, the mean of rates."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A statistic of `count` samples and its bootstrap 95 % interval, `low` to `high`."""

    statistic: Statistic
    value: float
    low: float
    high: float
    count: int

    def map(self, increasing: Callable[[float], float]) -> "Interval":
        """Return the interval of `increasing`, a function, applied to the statistic and bounds."""
        value, low, high = map(increasing, (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)

    def to_json(self) -> dict[str, float | int]:
        """Return the statistic, its interval and `count` for JSON, with six significant digits."""
        numbers = {self.statistic: self.value, "low": self.low, "high": self.high}
        return {name: significant(value, 6) for name, value in numbers.items()} | {
            "count": self.count
        }


def significant(value: float, digits: int) -> float:
    """Return `value` rounded to `digits` significant digits."""
    return float(f"{value:.{digits}g}")


def estimate(samples: Sequence[float], statistic: Statistic = "median") -> Interval:
    """Return a statistic with its percentile interval, from 2000 resamples (Efron 1979).

    The same samples give the same interval. Raises DragonError if there is no sample.
    """
    return _bootstrapped(statistic, np.median if statistic == "median" else np.mean, samples)


def paired(statistic: Callable[..., Any], *samples: Sequence[float]) -> Interval:
    """Return a statistic of several columns, whose rows are resampled together as in `estimate`.

    `statistic` is called with the columns and the axis of the samples; an example is `ratio`, whose
    interval is not that of the mean of ratios. Raises DragonError if there is no sample.
    """
    return _bootstrapped("mean", statistic, *samples)


def ratio(sums: Any, counts: Any, axis: int = 0) -> Any:
    """Return the sum of `sums` over the sum of `counts`, for `paired`; 0 if the divisor is 0."""
    above, below = sums.sum(axis=axis), counts.sum(axis=axis)
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _bootstrapped(name: Statistic, of: Callable[..., Any], *samples: Sequence[float]) -> Interval:
    if not samples[0]:
        raise DragonError("nothing was measured, so there is nothing to estimate")
    columns = tuple(np.asarray(each, dtype=np.float64) for each in samples)
    value, count = float(of(*columns, axis=0)), columns[0].size
    if count == 1:
        return Interval(name, value, value, value, 1)
    chance = np.random.Generator(np.random.Philox(0))
    drawn = (chance.integers(0, count, (BATCH, count)) for _ in range(RESAMPLES // BATCH))
    found = [of(*(column[places] for column in columns), axis=-1) for places in drawn]
    low, high = np.percentile(np.concatenate(found), (2.5, 97.5))
    return Interval(name, value, float(low), float(high), count)


def share(right: Sequence[float]) -> Interval:
    """Return the share of successes (1 of 0 or 1) with its 95 % interval (Wilson 1927)."""
    count, z = len(right), 1.96
    value = float(np.mean(right))
    middle, spread = value + z**2 / (2 * count), value * (1 - value) / count
    half = z * (spread + z**2 / (4 * count**2)) ** 0.5
    low, high = ((middle + way * half) / (1 + z**2 / count) for way in (-1, 1))
    return Interval("mean", value, max(low, 0.0), min(high, 1.0), count)


def exactly(value: float) -> Interval:
    """Return an Interval of zero width, for a number that is known and not estimated."""
    return Interval("mean", value, value, value, 1)


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by their values in `columns`, in the order of first appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """Return the values of a column, in the order of first appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def having(rows: Iterable[Row], **values: Any) -> list[Row]:
    """Return the rows that have these `values`, by column."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def mean(rows: Iterable[Row], column: str) -> float:
    """Return the mean of a column over all rows."""
    return float(np.mean([row[column] for row in rows]))


def estimates(
    rows: Iterable[Row], value: str, *columns: str, statistic: Statistic = "median"
) -> dict[tuple[Any, ...], Interval]:
    """Return the estimate of column `value`, but None, per group of rows with equal `columns`."""
    found = {}
    for key, group in grouped(rows, *columns).items():
        samples = [row[value] for row in group if row[value] is not None]
        if samples:
            found[key] = estimate(samples, statistic)
    return found


def averages(rows: Iterable[Row], value: str, *columns: str) -> dict[tuple[Any, ...], Interval]:
    """Return the mean of column `value`, with its interval, for each group with equal `columns`."""
    return estimates(rows, value, *columns, statistic="mean")


def table(
    rows: Iterable[Row], *keys: str, mean: Sequence[str] = (), median: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the means and medians of some columns for JSON, nested by the values of `keys`."""
    result: dict[str, Any] = {}
    for key, group in grouped(rows, *keys).items():
        node = result
        for name, value in zip(keys, key, strict=True):
            label = value if isinstance(value, str) else f"{name} {value:g}"
            node = node.setdefault(label, {})
        statistics: dict[Statistic, Sequence[str]] = {"mean": mean, "median": median}
        for statistic, columns in statistics.items():
            for column in columns:
                for each in estimates(group, column, statistic=statistic).values():
                    node[column] = each.to_json()
    return result
