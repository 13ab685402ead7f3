"""`dragonrt trace`: reports of the files that --trace wrote."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Annotated, Any

from cyclopts import Parameter
from typing_extensions import override

from dragonrt.cli.console import output
from dragonrt.cli.options import option

TOTALS = {
    "answers": "{answers}",
    "tokens": "{tokens}",
    "time to first token (median)": "{time_to_first_token_ms:.1f ms}",
    "time per token after it": "{ms_per_token:.2f ms}",
    "accepted drafts, device": "{acceptance[device]:.0%}",
    "accepted drafts, cloud": "{acceptance[cloud]:.0%}",
    "waited for own, other's draft": "{waited_ms[own]:.0f}, {waited_ms[other]:.0f ms}",
    "waited for the other's decision": "{waited_ms[target]:.0f ms}",
    "bytes sent, received": "{bytes_sent}, {bytes_received}",
    "bytes per token": "{bytes_per_token:.0f}",
    "bytes of handshakes and probes": "{sent}, {received}",
    "forwards, drafts made": "{forwards}, {drafted}",
    "time per forward": "{ms_per_forward:.2f ms}",
    "blocks sent, tokens of each": "{blocks}, {tokens_per_block:.1f}",
    "bits sent per token": "{bits_per_token:.1f}",
    "blocks with a token replaced": "{resampling_rate:.0%}",
    "time to verify a block": "{ms_per_verdict:.2f ms}",
    "workers that missed a round": "{absences}",
    "C-SQS: next threshold": "{conformal[beta]:.5f}",
    "C-SQS: mass dropped, at most": "{conformal[average_dropped]:.5f}, {conformal[bound]:.5f}",
    "bytes of questions, histories sent": "{question_bytes}, {history_bytes}",
    "sent: tokens, distributions": "{tokens_sent}, {distributions_sent}",
    "tokens withheld, not in the answer": "{tokens_withheld}, {tokens_not_in_answer}",
    "bits revealed, of evidence": "{revealed_bits:z.1f}, {evidence_bits:z.0f}",
    "preempted forwards": "{preemptions}",
    "roll-backs, tokens dropped": "{rollbacks}, {dropped}",
    "switches of the aggregator": "{switches}",
    "losses of the other side": "{losses}",
    "differing texts": "{divergences}",
    "round trip of probes: median, most": "{rtt_ms:.2f}, {rtt_ms_range[1]:.2f ms}",
    "bandwidth (median of probes)": "{bandwidth_bits:,d bit/s}",
}
"""Rows of the first table; those in which no file has a number but 0 are left out."""

ANSWER = {
    "session": "{name}",
    "end": "{finish}",
    "tokens": "{tokens}",
    "first": "{time_to_first_token_ms:.0f ms}",
    "/token": "{ms_per_token:.1f ms}",
    "accepted": "{acceptance[device]:.0%}, {acceptance[cloud]:.0%}",
    "bytes/token": "{bytes_per_token:.0f}",
    "dropped": "{dropped}",
}
"""Columns of a file's table of answers."""


class _Cells(Formatter):
    """Formats a number with its unit, one that a report does not have as "-"."""

    @override
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (KeyError, TypeError):
            return None, field_name

    @override
    def format_field(self, value: Any, format_spec: str) -> str:
        number, space, unit = format_spec.partition(" ")
        return "-" if value is None else f"{value:{number}}{space}{unit}"


def trace(
    file: Annotated[Path, Parameter(help="The trace of one side.")],
    second: Annotated[
        Path | None, Parameter(help="The trace of the other side.", show_default=False)
    ] = None,
    /,
    *,
    as_json: Annotated[bool, option("Print one JSON object per file.", "--json")] = False,
) -> None:
    """Sum up traces: times, acceptance, waits, bytes, roll-backs; per answer and in total."""
    from rich import box
    from rich.table import Table

    from dragonrt.traces.file import read_trace
    from dragonrt.traces.statistics import summary

    reports = [summary(read_trace(path)) for path in (file, second) if path is not None]
    if as_json:
        for report in reports:
            print(json.dumps(report, ensure_ascii=False))
        return
    cells, totals = _Cells(), [_total(report) for report in reports]
    table = Table("", box=box.SIMPLE_HEAD)
    for report in reports:
        table.add_column(f"{report['side']} ({report['model']})", justify="right")
    for name, form in TOTALS.items():
        row = [cells.vformat(form, (), total) for total in totals]
        if re.search("[1-9]", "".join(row)):
            table.add_row(name, *row)
    output.print(table)
    for report in reports:
        if len(report["answers"]) > 1:
            title = f"answers, as the {report['side']} saw them"
            table = Table(title=title, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
            for name in ANSWER:
                text = name in ("session", "end")
                table.add_column(name, justify="left" if text else "right", no_wrap=True)
            for answer in _named(report):
                table.add_row(*(cells.vformat(form, (), answer) for form in ANSWER.values()))
            output.print(table)


def _total(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's numbers, with the sums of what the answers disclosed."""
    ledgers = [answer["ledger"] for answer in report["answers"] if "ledger" in answer]
    sums = {}
    for name in ledgers[0] if ledgers else ():
        known = [each[name] for each in ledgers if isinstance(each[name], int | float)]
        sums[name] = sum(known) if known else None
    total = report["total"] | report["probes"] | report["other_bytes"] | sums
    return {**total, "answers": len(report["answers"]), "tokens": total["tokens"] or None}


def _named(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the answers, with a cloud's devices numbered in the order of their answers."""
    answers = report["answers"]
    peers = list(dict.fromkeys(answer.get("peer") for answer in answers))
    named = []
    for answer in answers:
        number = f" of #{peers.index(answer.get('peer')) + 1}" if len(peers) > 1 else ""
        name = f"{answer['session']}{number}{' (resumed)' if answer['resumed'] else ''}"
        named.append({**answer, "name": name, "tokens": answer["tokens"] or None})
    return named
