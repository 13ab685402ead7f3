"""`docs/results`: what is kept of each run, its page, the claims of all, and what differs.

A run is kept as an entry of `runs.json` and a CSV file for each table. Pages are made of these and
of `pages.toml`, which says what a page shows; so a page can be made again without a measurement.
"""

import csv
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dragonrt.errors import DragonError
from scripts.lab.intervals import Interval, share

WIDE = 10
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

    The fewest first cells that differ between all rows identify a row.
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


# What is kept of runs, and the pages of them.

RESULTS = Path(__file__).parents[2] / "docs" / "results"
LAYOUT = Path(__file__).with_suffix(".toml")
MADE = "<!-- Made by scripts/make_docs.py. -->"
ROWS = 30
"""Rows of all tables of a page together; a table says how many more its file has."""

INDEX = """# Results

{made}

Each claim has its numbers, with intervals of 95 % in parentheses. `scripts/results NAME` measures
the page NAME again and compares it. On pages marked timed every number depends on the machine and
its load, and may differ by a factor of {factor:g} ([artefact](../artefact.md)). netns,
netns-serving and dragon-code are measured by hand.
"""
PICTURE = (
    '<picture><source media="(prefers-color-scheme: dark)" srcset="../figures/{name}-dark.png">'
    '<img src="../figures/{name}.png" alt="{name}" width="800"></picture>'
)


@cache
def layout() -> dict[str, Any]:
    """Return `pages.toml`: papers, the page of each run by its name, and claims."""
    read = tomllib.loads(LAYOUT.read_text("utf-8"))
    return read | {"page": {each["name"]: each for each in read["page"]}}


def kept(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return what is known of each run beside its tables."""
    found: dict[str, dict[str, Any]] = json.loads((folder / "runs.json").read_text("utf-8"))
    return found


def kept_tables(name: str, folder: Path = RESULTS) -> list[Table]:
    """Return the tables of a run; none if none are kept."""
    count = kept(folder).get(name, {}).get("tables", 0)
    files = (folder / _file(name, number) for number in range(count))
    tables = (csv.reader(StringIO(file.read_text("utf-8"))) for file in files)
    return [(headings, rows) for headings, *rows in tables]


def keep(records: Sequence[Mapping[str, Any]], folder: Path = RESULTS) -> None:
    """Keep records of runs in place of those of before; other runs stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = kept(folder) if (folder / "runs.json").exists() else {}
    for record in records:
        name, found = record["run"], tables(record)
        for number in range(len(found), runs.get(name, {}).get("tables", 0)):
            (folder / _file(name, number)).unlink()
        for number, table in enumerate(found):
            (folder / _file(name, number)).write_text(_written(table), encoding="utf-8")
        machine = record["machine"]
        runs[name] = {
            "command": record["command"],
            "date": record["date"],
            "commit": record["commit"],
            "seed": record["seed"],
            "processor": machine["processor"],
            "cores": machine["cores"],
            "seconds": record["seconds"],
            "timed": record["timed"],
            "note": record.get("note", ""),
            "pictures": record["pictures"],
            "tables": len(found),
        }
    text = json.dumps(runs, ensure_ascii=False, indent=1)
    (folder / "runs.json").write_text(text + "\n", encoding="utf-8")


def pages(folder: Path = RESULTS) -> dict[str, str]:
    """Return the text of every page by its file's name: the claims, and one page a run."""
    runs = kept(folder)
    return {"index.md": _index(runs, folder)} | {f"{name}.md": page(name, folder) for name in runs}


def write(folder: Path = RESULTS) -> None:
    """Write every page."""
    for name, text in pages(folder).items():
        (folder / name).write_text(text, encoding="utf-8")


def _index(runs: Mapping[str, Mapping[str, Any]], folder: Path) -> str:
    counts = Counter(str(run["commit"]) for run in runs.values()).most_common()
    commits = ", ".join(f"{commit} {count}" for commit, count in counts)
    parts = [INDEX.format(made=MADE, factor=FACTOR), f"Pages by commit: {commits}.\n"]
    named = layout()["page"]
    names = [
        *(name for name in named if name in runs),
        *(name for name in runs if name not in named),
    ]
    for paper in layout()["paper"]:
        own = [name for name in names if named.get(name, {}).get("paper", "more") == paper["key"]]
        if not own:
            continue
        claims = [each for each in layout()["claim"] if each["page"] in own]
        parts.append(f"## {paper['title']}\n")
        parts += [_claim(each, folder) for each in claims]
        claimed = {each["page"] for each in claims}
        if more := [f"[{name}]({name}.md)" for name in own if name not in claimed]:
            parts.append(f"\nMore: {', '.join(more)}.")
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _claim(claim: Mapping[str, Any], folder: Path) -> str:
    name = claim["page"]
    found = kept_tables(name, folder)

    def number(row: Sequence[str], table: int, column: str) -> str:
        headings, rows = found[table - 1]
        place = list(headings).index(column) if column in headings else -1
        same = [each for each in rows if list(each[: len(row)]) == list(row)]
        if place < 0 or len(same) != 1:
            raise DragonError(f"{LAYOUT.name}: {name} has not one cell {', '.join(row)}, {column}")
        return _compact(same[0][place])

    table = claim.get("table", 1)
    numbers = {"value": number(claim["row"], table, claim["column"])}
    if "beside_row" in claim or "beside_column" in claim:
        row = claim.get("beside_row", claim["row"])
        numbers["beside"] = number(row, table, claim.get("beside_column", claim["column"]))
    return f"- {claim['says'].format(**numbers)} [{name}]({name}.md)"


def page(name: str, folder: Path = RESULTS) -> str:
    """Return the page of a run: pictures, what they show, a part of its tables, how it was made."""
    runs = kept(folder)
    run = runs[name]
    same = next(each for each in runs if runs[each]["note"] == run["note"])
    shown = layout()["page"].get(name, {})
    seed = "" if run["seed"] is None else f", seed {run['seed']}"
    parts = [
        f"# {shown.get('title', name)}",
        MADE,
        *(PICTURE.format(name=each) for each in run["pictures"]),
        " ".join(shown.get("shows", "").split()),
        *_shown(name, shown.get("table"), folder),
        run["note"] if same == name or not run["note"] else f"Columns as of [{same}]({same}.md).",
        f"`{run['command']}`{' (timed)' if run.get('timed') else ''}, {run['date']}, commit "
        f"{run['commit']}{seed}; {run['processor']}, {run['cores']} cores.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _shown(name: str, views: Sequence[Mapping[str, Any]] | None, folder: Path) -> Iterator[str]:
    """Yield the tables of a page, and links to the files that have all of their rows."""
    found = kept_tables(name, folder)
    left = ROWS
    for each in views or [{"table": number + 1} for number in range(len(found))]:
        headings, rows = view(found[each.get("table", 1) - 1], each)
        if not rows:
            raise DragonError(f"{LAYOUT.name}: a table of {name} has no rows")
        if caption := each.get("caption"):
            yield f"{caption}:"
        if some := rows[:left]:
            yield _markdown(headings, some)
            left -= len(some)
    files = (f"[{file}]({file})" for file in (_file(name, n) for n in range(len(found))))
    yield f"All rows: {', '.join(files)}."


def view(table: Table, wanted: Mapping[str, Any]) -> Table:
    """Return the part of a table that a page shows.

    `where` keeps the rows whose columns match a pattern. `match` is searched for in a row's first
    cell: its group `row` replaces that cell, and with a group `column` the values of `value` stand
    beside each other. `columns` are those that are shown.
    """
    headings, rows = table
    for column, pattern in wanted.get("where", {}).items():
        place = list(headings).index(column)
        rows = [row for row in rows if re.search(pattern, row[place])]
    columns = wanted.get("columns", headings[1:] if "match" in wanted else headings)
    places = [list(headings).index(each) for each in columns]
    if "match" not in wanted:
        return columns, [[row[place] for place in places] for row in rows]
    found = [(re.search(wanted["match"], row[0]), row) for row in rows]
    matched = [(hit.groupdict(), row) for hit, row in found if hit]
    of = wanted.get("of", "")
    if "value" not in wanted:
        return [of, *columns], [[key["row"], *(row[p] for p in places)] for key, row in matched]
    place = list(headings).index(wanted["value"])
    across = list(dict.fromkeys(key["column"] for key, _ in matched))
    cells = {(key["row"], key["column"]): row[place] for key, row in matched}
    names = dict.fromkeys(key["row"] for key, _ in matched)
    return [of, *across], [[name, *(cells.get((name, at), "-") for at in across)] for name in names]


def _markdown(headings: Cells, rows: Sequence[Cells]) -> str:
    def line(cells: Cells) -> str:
        return f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in cells)}|"

    body = (line([_compact(cell) for cell in row]) for row in rows)
    return "\n".join((line(headings), f"|{'---|' * len(headings)}", *body))


def _compact(cell: str) -> str:
    """Return a cell as people read it: no exponents of large numbers, intervals with a dash."""

    def plain(number: str) -> str:
        large = "e+" in number
        return f"{float(number):,.0f}" if large else number

    if found := INTERVAL.fullmatch(cell):
        value, low, high = found.groups()
        if low == high == value:
            return plain(value)
        dash = " to " if "-" in low + high else "–"
        return f"{plain(value)} ({plain(low)}{dash}{plain(high)})"
    return plain(cell) if re.fullmatch(NUMBER, cell) else cell


def _file(name: str, number: int) -> str:
    return f"{name}-{number + 1}.csv" if number else f"{name}.csv"


def _written(table: Table) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table[0])
    writer.writerows(table[1])
    return text.getvalue()
