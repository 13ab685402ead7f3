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

WIDE, LONG = 8, 24
"""Columns of numbers that a figure's table has at most; rows of one that is shown unfolded."""
FACTOR = 2.0
"""So far may times and what depends on them be apart."""

Cells = Sequence[str]
Table = tuple[Cells, Sequence[Cells]]
"""Headings and rows."""

_NUMBER = r"-?\d[\d.,]*(?:e[+-]?\d+)?"
_INTERVAL = re.compile(rf"{_NUMBER} \(({_NUMBER})(?:-| to )({_NUMBER})\)")
_COUNT = re.compile(r"\d+ of \d+")
PICTURE = (
    '\n<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{name}-dark.png">'
    '<img src="figures/{name}.png" alt="{name}" width="800"></picture>'
)


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: a section for each record. Raises KeyError for what is no record."""
    seconds = [record["seconds"] for record in records if "seconds" in record]
    took = f"{len(seconds)} runs took {sum(seconds) / 3600:.1f} hours together.\n"
    parts = [HEAD.format(factor=FACTOR), took, *(each for one in records for each in _section(one))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def _section(record: Mapping[str, Any]) -> Iterator[str]:
    machine, versions = record["machine"], record["versions"]
    timed = " (timed)" if record.get("timed") else ""
    yield f"## {record.get('run') or record.get('benchmark') or record['experiment']}{timed}\n"
    seed = "" if record["seed"] is None else f", seed {record['seed']}"
    commit = f" at {record['commit']}" if record.get("commit") else ""
    yield f"`{record['command']}`, {record['date']}, dragonrt {versions['dragonrt']}{commit}{seed};"
    yield f"{machine['processor']}, {machine['cores']} cores."
    yield from (PICTURE.format(name=name) for name in record.get("pictures", ()))
    for table in record.get("tables") or _tables(record["summary"]):
        folded = len(table["rows"]) > LONG
        yield f"\n<details><summary>{len(table['rows'])} rows</summary>\n" if folded else ""
        yield _line(" ".join(heading.split()) for heading in table["headings"])
        yield _line("---" for _ in table["headings"])
        yield from map(_line, table["rows"])
        yield "\n</details>\n" if folded else ""
    yield " ".join(filter(None, (record.get("note"), record.get("remark")))) + "\n"


def _line(cells: Any) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


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
