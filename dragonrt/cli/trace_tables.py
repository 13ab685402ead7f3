"""The command `dragonrt trace`: print summaries of the files that --trace wrote."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dragonrt.cli.console import output
from dragonrt.cli.options import option

ANSWER = ("session", "finish", "tokens", "time_to_first_token_ms", "ms_per_token", "acceptance")
"""The numbers of a file's table of answers."""


def trace(
    file: Annotated[Path, Parameter(help="The trace of one side.")],
    second: Annotated[
        Path | None, Parameter(help="The trace of the other side.", show_default=False)
    ] = None,
    /,
    *,
    as_json: Annotated[bool, option("Print one JSON object per file.", "--json")] = False,
) -> None:
    """Print the times, acceptance, waits, bytes and rollbacks of traces, per answer and in all."""
    from rich import box
    from rich.table import Table

    from dragonrt.traces.file import read_trace
    from dragonrt.traces.statistics import summary

    reports = [summary(read_trace(path)) for path in (file, second) if path is not None]
    if as_json:
        for report in reports:
            print(json.dumps(report, ensure_ascii=False))
        return
    totals = [dict(_numbers(_total(report))) for report in reports]
    table = Table("", box=box.SIMPLE_HEAD)
    for report in reports:
        table.add_column(f"{report['side']} ({report['model']})", justify="right")
    for name in dict.fromkeys(name for total in totals for name in total):
        if any(total.get(name) for total in totals):
            table.add_row(name, *(_shown(total.get(name)) for total in totals))
    output.print(table)
    for report in (each for each in reports if len(each["answers"]) > 1):
        title = f"answers, as the {report['side']} saw them"
        table = Table(title=title, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        answers = [{name: each[name] for name in ANSWER} for each in _named(report)]
        for name, _ in _numbers(answers[0]):
            table.add_column(name, justify="right", no_wrap=name in ANSWER[:2])
        for answer in answers:
            table.add_row(*(_shown(value) for _, value in _numbers(answer)))
        output.print(table)


def _total(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's numbers, with the sums of what the answers disclosed."""
    ledgers = [answer["ledger"] for answer in report["answers"] if "ledger" in answer]
    left = {}
    for name in ledgers[0] if ledgers else ():
        known = [each[name] for each in ledgers if isinstance(each[name], int | float)]
        left[name] = round(sum(known), 2) if known else None
    head = {"answers": len(report["answers"])}
    more = {"handshakes and probes": report["other_bytes"], "probes": report["probes"]}
    return {**head, **report["total"], "disclosed": left, **more}


def _numbers(report: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all numbers of a report by their names, those of parts behind the part's."""
    for name, value in report.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{above}{name} ")
        else:
            yield f"{above}{name}".replace("_", " "), value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(map(_shown, value))
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _named(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answers, with a cloud's devices numbered in the order of their answers."""
    answers = report["answers"]
    peers = list(dict.fromkeys(answer.get("peer") for answer in answers))
    named = []
    for answer in answers:
        number = f" of #{peers.index(answer.get('peer')) + 1}" if len(peers) > 1 else ""
        name = f"{answer['session']}{number}{' (resumed)' if answer['resumed'] else ''}"
        named.append({**answer, "session": name})
    return named
