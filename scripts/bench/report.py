"""`docs/results.md` of the records of runs, and what differs between two such pages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

HEAD = """# Results

Made by `scripts/results`: every section names its command, its pictures are drawn from the same
rows. Values in brackets are 95 % intervals. The script fails where a new run differs: where two
intervals do not overlap, or counts (`8 of 8`) are not the same. In a section called timed every
number depends on the machine and its load: there it fails beyond a factor of {factor:g}.
"""

FACTOR = 2.0
"""So far may times and what depends on them be apart."""

Cells = Sequence[str]
Table = tuple[Cells, Sequence[Cells]]
"""Headings and rows."""

_NUMBER = r"-?\d[\d.,]*(?:e[+-]?\d+)?"
_INTERVAL = re.compile(rf"{_NUMBER} \(({_NUMBER})(?:-| to )({_NUMBER})\)")
_COUNT = re.compile(r"\d+ of \d+")
PICTURE = (
    '<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{name}-dark.png">'
    '<img src="figures/{name}.png" alt="{name}" width="800"></picture>\n'
)


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: a section for each record. Raises KeyError for what is no record."""
    hours = sum(record.get("seconds", 0.0) for record in records) / 3600
    took = f"\nAll {len(records)} runs took {hours:.1f} hours.\n"
    sections = ("\n".join(_section(record)) for record in records)
    return "\n".join([HEAD.format(factor=FACTOR) + took, *sections])


def _section(record: Mapping[str, Any]) -> Iterator[str]:
    machine, versions = record["machine"], record["versions"]
    timed = " (timed)" if record.get("timed") else ""
    yield f"## {record.get('run') or record.get('benchmark') or record['experiment']}{timed}\n"
    seed = "" if record["seed"] is None else f", seed {record['seed']}"
    commit = f" at {record['commit']}" if record.get("commit") else ""
    yield f"`{record['command']}`, {record['date']}, dragonrt {versions['dragonrt']}{commit}{seed};"
    yield f"{machine['processor']}, {machine['cores']} cores.\n"
    yield from (PICTURE.format(name=name) for name in record.get("pictures", ()))
    tables = record.get("tables") or [
        {"headings": ["what", "value"], "rows": list(_flat(record["summary"]))}
    ]
    for table in tables:
        yield _line(" ".join(heading.split()) for heading in table["headings"])
        yield _line("---" for _ in table["headings"])
        yield from map(_line, table["rows"])
        yield ""
    if note := record.get("note"):
        yield note + "\n"


def _line(cells: Any) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the numbers of a summary by their path; an estimate with its interval."""
    if isinstance(value, Mapping) and {"low", "high"} <= value.keys():
        middle = value.get("median", value.get("mean"))
        yield name, f"{middle:.4g} ({value['low']:.4g} to {value['high']:.4g})"
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}, {key}" if name else str(key))
    else:
        yield name, f"{value:.4g}" if isinstance(value, float) else str(value)


def differences(kept: str, made: str) -> Iterator[str]:
    """Yield a line for each number of the kept page that the sections of another do not confirm.

    Sections that only one of both has are not compared.
    """
    ours, theirs = dict(_sections(made)), dict(_sections(kept))
    for name in [each for each in theirs if each in ours]:
        for place, table in enumerate(theirs[name]):
            found = ours[name][place] if place < len(ours[name]) else ((), [])
            for each in table_differences(table, found, timed=name.endswith("(timed)")):
                yield f"{name}: {each}"


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
        if name not in found or made[0] != headings:
            yield f"{', '.join(name)}: not measured"
            continue
        for heading, ours, theirs in zip(headings, row, found[name], strict=True):
            if _differ(ours, theirs, timed=timed):
                yield f"{', '.join(name)}, {heading}: {ours} on the page, {theirs} now"


def _differ(kept: str, made: str, *, timed: bool) -> bool:
    if _COUNT.fullmatch(kept):
        return kept != made
    (low, high), (least, most) = (_bounds(cell, timed) for cell in (kept, made))
    slack = FACTOR if timed else 1.0
    return low > slack * most or least > slack * high


def _bounds(cell: str, timed: bool) -> tuple[float, float]:
    """Return what a cell's number lies between; all numbers if it is not compared."""
    if found := _INTERVAL.search(cell):
        low, high = (float(bound.replace(",", "")) for bound in found.groups())
        return low, high
    if timed and (number := re.match(_NUMBER, cell)):
        value = float(number[0].replace(",", ""))
        return value, value
    return float("-inf"), float("inf")


def _sections(text: str) -> Iterator[tuple[str, list[Table]]]:
    """Yield the name and the tables of each section of a page."""
    for section in text.split("\n## ")[1:]:
        name, *lines = section.splitlines()
        rest, tables = iter(lines), list[Table]()
        for line in rest:
            if line.startswith("| "):
                body = [_cells(each) for each in takewhile(lambda row: row.startswith("|"), rest)]
                tables.append((_cells(line), body[1:]))
        yield name, tables


def _cells(line: str) -> Cells:
    return tuple(re.split(r"(?<!\\) \| ", line[2:-2]))
