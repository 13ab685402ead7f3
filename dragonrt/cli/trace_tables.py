"""`dragonrt trace`: reports of the files that --trace wrote."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dragonrt.cli.console import output
from dragonrt.cli.options import option

if TYPE_CHECKING:
    from rich.table import Table

MISSING = "-"


def trace(
    file: Annotated[Path, Parameter(help="The trace of one side.")],
    second: Annotated[
        Path | None, Parameter(help="The trace of the other side.", show_default=False)
    ] = None,
    /,
    *,
    as_json: Annotated[bool, option("Print one JSON object per file.", "--json")] = False,
    chrome: Annotated[
        Path | None, option("Write everything for Perfetto or chrome://tracing.", kind="JSON")
    ] = None,
) -> None:
    """Sum up traces: times, acceptance, waits, bytes, roll-backs; per answer and in total."""
    from dragonrt.traces.file import read_trace

    traces = [read_trace(path) for path in (file, second) if path is not None]
    if chrome is not None:
        from dragonrt.traces.chrome import write_chrome_trace
        from dragonrt.traces.timeline import aligned

        write_chrome_trace(aligned(traces), chrome)
        output.print(str(chrome), markup=False, soft_wrap=True)
    else:
        from dragonrt.traces.answers import summary

        reports = [summary(records) for records in traces]
        if as_json:
            for report in reports:
                print(json.dumps(report, ensure_ascii=False))
            return
        output.print(_totals(reports))
        for report in reports:
            if len(report["answers"]) > 1:
                output.print(_answers(report))


def _totals(reports: list[dict[str, Any]]) -> "Table":
    """Return a column per file and a row per number."""
    from rich import box
    from rich.table import Table

    columns = [_cells(report) for report in reports]
    table = Table("", box=box.SIMPLE_HEAD)
    for report in reports:
        table.add_column(f"{report['side']} ({report['model']})", justify="right")
    for name in max(columns, key=len):
        table.add_row(name, *(column.get(name, MISSING) for column in columns))
    return table


def _cells(report: dict[str, Any]) -> dict[str, str]:
    total, probes, other = report["total"], report["probes"], report["other_bytes"]
    waited, rtts, found = total["waited_ms"], probes["rtt_ms_range"], total["conformal"]
    bits = probes["bandwidth_bits"]
    ledgers = [each["ledger"] for each in report["answers"] if "ledger" in each]

    def left(name: str) -> Any:
        known = [each[name] for each in ledgers if each[name] is not None]
        return sum(known) if known else None

    cells = {
        "answers": str(len(report["answers"])),
        "tokens": _decided(total),
        "time to first token (median)": _number(total["time_to_first_token_ms"], 1, " ms"),
        "time per token after it": _number(total["ms_per_token"], 2, " ms"),
        "accepted drafts, device": _share(total["acceptance"]["device"]),
        "accepted drafts, cloud": _share(total["acceptance"]["cloud"]),
        "waited for the own draft": _number(waited.get("own"), 0, " ms"),
        "waited for the other's draft": _number(waited.get("other"), 0, " ms"),
        "waited for the other's decision": _number(waited.get("target"), 0, " ms"),
        "bytes sent, received": f"{total['bytes_sent']}, {total['bytes_received']}",
        "bytes per token": _number(total["bytes_per_token"]),
        "bytes of handshakes and probes": f"{other['sent']}, {other['received']}",
        "forwards, drafts made": f"{total['forwards']}, {total['drafted']}",
        "time per forward": _number(total["ms_per_forward"], 2, " ms"),
    }
    if total["blocks"] or total["verified"]:  # one side drafts blocks for the other
        size = _number(total["tokens_per_block"], 1)
        cells |= {
            "blocks sent, tokens of each": f"{total['blocks']}, {size}",
            "bits sent per token": _number(total["bits_per_token"], 1),
            "blocks with a token replaced": _share(total["resampling_rate"]),
            "time to verify a block": _number(total["ms_per_verdict"], 2, " ms"),
            "workers that missed a round": str(total["absences"]),
        }
        if found:  # the threshold for the next token, and what all tokens dropped (SQS Th. 2)
            trivial = " (says nothing)" if found["says_nothing"] else ""
            cells |= {
                "C-SQS: next threshold": _number(found["beta"], 5),
                "C-SQS: mass dropped per token": _number(found["average_dropped"], 5),
                "C-SQS: it is at most": _number(found["bound"], 5) + trivial,
            }
    if ledgers:
        asked = f"{left('question_bytes')}, {left('history_bytes')}"
        drafts = f"{left('tokens_sent')}, {left('distributions_sent')}"
        cells |= {
            "bytes of questions, histories sent": asked,
            "sent: tokens, distributions": drafts,
            "sent, but not in the answer": str(left("tokens_not_in_answer")),
            "withheld: tokens": str(left("tokens_withheld")),
            "revealed to the cloud": _number(left("revealed_bits"), 1, " bits"),
            "evidence of the own documents": _number(left("evidence_bits"), 0, " bits"),
        }
    return cells | {
        "preempted forwards": str(total["preemptions"]),
        "roll-backs, tokens dropped": f"{total['rollbacks']}, {total['dropped']}",
        "switches of the aggregator": str(total["switches"]),
        "other side lost": str(total["losses"]),
        "differing texts": str(total["divergences"]),
        "round trip (median of probes)": _number(probes["rtt_ms"], 2, " ms"),
        "round trip, least to most": f"{rtts[0]:.2f} - {rtts[1]:.2f} ms" if rtts else MISSING,
        "bandwidth (median of probes)": _number(bits and bits / 1e6, 2, " Mbit/s"),
    }


def _answers(report: dict[str, Any]) -> "Table":
    """Return a row per answer; a cloud's devices are numbered in the order of their answers."""
    from rich import box
    from rich.table import Table

    title = f"answers, as the {report['side']} saw them"
    table = Table(title=title, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("session", "end"):
        table.add_column(name, no_wrap=True)
    for name in ("tokens", "first", "/token", "accepted", "bytes/token", "dropped"):
        table.add_column(name, justify="right", no_wrap=True)
    peers = list(dict.fromkeys(answer.get("peer") for answer in report["answers"]))
    for answer in report["answers"]:
        acceptance = answer["acceptance"]
        number = peers.index(answer.get("peer")) + 1
        name = f"{answer['session']} of #{number}" if len(peers) > 1 else f"{answer['session']}"
        table.add_row(
            f"{name} (resumed)" if answer["resumed"] else name,
            answer["finish"] or "none",
            _decided(answer),
            _number(answer["time_to_first_token_ms"], 0, " ms"),
            _number(answer["ms_per_token"], 1, " ms"),
            f"{_share(acceptance['device'])}, {_share(acceptance['cloud'])}",
            _number(answer["bytes_per_token"]),
            str(answer["dropped"]),
        )
    return table


def _decided(report: dict[str, Any]) -> str:
    """Return the number of tokens that this side decided; "-" if it verifies blocks."""
    verifies = report["verified"] and not report["blocks"]
    return MISSING if verifies and not report["tokens"] else str(report["tokens"])


def _number(value: Any, digits: int = 0, unit: str = "") -> str:
    return MISSING if value is None else f"{round(value, digits) + 0.0:.{digits}f}{unit}"


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f}%"
