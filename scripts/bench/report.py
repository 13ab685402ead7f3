"""The tables of a run's record, and what differs between two runs of the same command."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from scripts.lab.intervals import Interval, share

WIDE = 8
"""Columns of numbers that a figure's table has at most."""
FACTOR = 2.0
"""So far may times and what depends on them be apart."""

Cells = Sequence[str]
Table = tuple[Cells, Sequence[Cells]]
"""Headings and rows."""

NUMBER = r"-?\d[\d.,]*(?:e[+-]?\d+)?"
INTERVAL = re.compile(rf"({NUMBER}) \(({NUMBER})(?:-| to )({NUMBER})\)")
_COUNT = re.compile(r"(\d+) of (\d+)")


def tables(record: Mapping[str, Any]) -> list[Table]:
    """Return what a record shows. Raises KeyError for what is no record."""
    shown = record.get("tables") or _tables(record["summary"])
    return [([" ".join(each.split()) for each in one["headings"]], one["rows"]) for one in shown]


def _tables(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield tables of a figure's numbers: those that several cases have stand below each other."""
    groups: list[dict[str, dict[str, str]]] = []
    for path, numbers in _numbers(summary):
        for group in groups:
            if any(numbers.keys() & row.keys() for row in group.values()):
                group[path] = numbers
                break
        else:
            groups.append({path: numbers})
    rows = []
    for group in groups:
        names = list(dict.fromkeys(name for row in group.values() for name in row))
        if len(group) > 1 and len(names) <= WIDE:
            cells = [[path, *(row.get(name, "-") for name in names)] for path, row in group.items()]
            yield {"headings": ["of", *names], "rows": cells}
        else:
            parts = ((path, item) for path, row in group.items() for item in row.items())
            rows += [[f"{path}, {name}" if path else name, text] for path, (name, text) in parts]
    if rows:
        yield {"headings": ["what", "value"], "rows": rows}


def _numbers(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what each part of a summary holds itself, by its path; estimates with intervals."""
    inner = {key: each for key, each in node.items() if isinstance(each, Mapping)}
    inner = {key: each for key, each in inner.items() if not {"low", "high"} <= each.keys()}
    if own := {str(key): _text(each) for key, each in node.items() if key not in inner}:
        yield path, own
    for key, each in inner.items():
        yield from _numbers(each, f"{path}, {key}" if path else str(key))


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        middle = value.get("median", value.get("mean"))
        if value.get("count") == 1:
            return f"{middle:.4g}"
        return f"{middle:.4g} ({value['low']:.4g} to {value['high']:.4g})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def differences(kept: Sequence[Table], made: Sequence[Table], *, timed: bool) -> Iterator[str]:
    """Yield a line for each number of the kept tables that the others do not confirm."""
    none: Table = ((), [])
    for table, found in zip_longest(kept, made, fillvalue=none):
        yield from table_differences(table, found, timed=timed)


def table_differences(kept: Table, made: Table, *, timed: bool) -> Iterator[str]:
    """Yield a line for each row, and each number of one, that the table `made` does not confirm.

    Rows are told apart by as many of their first cells as that takes.
    """
    headings, rows = kept
    names = next(
        (n for n in range(1, len(headings)) if len({tuple(row[:n]) for row in rows}) == len(rows)),
        len(headings),
    )
    found = {tuple(row[:names]): row for row in made[1]}
    for row in rows:
        name = tuple(row[:names])
        if name not in found or list(made[0]) != list(headings):
            yield f"{', '.join(name)}: not measured"
            continue
        for heading, ours, theirs in zip(headings, row, found[name], strict=True):
            if _differ(ours, theirs, timed=timed):
                yield f"{', '.join(name)}, {heading}: {ours} is kept, {theirs} now"


def _differ(kept: str, made: str, *, timed: bool) -> bool:
    if count := _COUNT.fullmatch(kept):
        # All of them is a promise; some of them, where the machine decides how many, an estimate.
        other = _COUNT.fullmatch(made) if timed and count[1] != count[2] else None
        if not other:
            return kept != made
        ours, theirs = (_proportion(each) for each in (count, other))
        return ours.low > theirs.high or theirs.low > ours.high
    before, now = _bounds(kept, number=timed), _bounds(made, number=True)
    if before is None or now is None:  # not compared, or no number any more
        return before is not None
    slack = FACTOR if timed else 1.0

    def beyond(low: float, high: float) -> bool:
        return low > (high * slack if high > 0 else high / slack)

    return beyond(before[0], now[1]) or beyond(now[0], before[1])


def _proportion(count: re.Match[str]) -> Interval:
    number, total = int(count[1]), int(count[2])
    return share([1.0] * number + [0.0] * (total - number))


def _bounds(cell: str, *, number: bool) -> tuple[float, float] | None:
    """Return what a cell's number lies between: its interval, or itself if that is compared."""
    if found := INTERVAL.search(cell):
        _, low, high = (float(bound.replace(",", "")) for bound in found.groups())
        return low, high
    if number and (alone := re.match(NUMBER, cell)):
        value = float(alone[0].replace(",", ""))
        return value, value
    return None
