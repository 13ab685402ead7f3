"""Reports of an answer's counts: on the device, of its mode, of a trace, and of what left."""

from collections.abc import Callable
from statistics import median
from typing import Any

from dragonrt.side import Side
from dragonrt.traces.counts import AnswerCounts, Counts
from dragonrt.traces.events import AnswerClosed

SUMS = (
    *("bytes_sent", "bytes_received", "forwards", "drafted", "blocks", "block_tokens", "bits"),
    *("verified", "resampled", "preemptions", "rollbacks", "dropped", "switches", "divergences"),
    "losses",
)
"""Counts that a trace's report copies."""


def statistics(
    answer: AnswerCounts, of_mode: Callable[[AnswerCounts], dict[str, Any]] = lambda answer: {}
) -> dict[str, Any]:
    """Return the numbers of a finished answer, as in `--json`; those `of_mode` last.

    None for those that were not measured.
    """
    closed, total_s = answer.closed or AnswerClosed(""), None
    if answer.last_s is not None and answer.opened_s is not None:
        total_s = answer.last_s - answer.opened_s
    return {
        "tokens": answer.tokens,
        "time_to_first_token_ms": milliseconds(next(iter(answer.first_token_s), None)),
        "ms_per_token": _ms_each(answer.between_s, answer.intervals),
        "total_ms": milliseconds(total_s),
        "bytes_sent": closed.bytes_sent,
        "bytes_received": closed.bytes_received,
        "bytes_per_token": mean(closed.bytes_sent + closed.bytes_received, answer.tokens),
        "padding_sent": closed.padding_sent,
        "padding_received": closed.padding_received,
        "held_ms": milliseconds(closed.held),
        "rtt_ms": milliseconds(closed.rtt),
        "acceptance": acceptance(answer, "device", "cloud"),
        **of_mode(answer),
    }


def trace_report(counts: Counts) -> dict[str, Any]:
    """Return the `dragonrt trace --json` report of an answer, or of the sum of several."""
    dropped = counts.dropped_mass
    return {
        "tokens": counts.tokens,
        "time_to_first_token_ms": median_ms(counts.first_token_s),
        "ms_per_token": _ms_each(counts.between_s, counts.intervals),
        "acceptance": acceptance(counts, "device", "cloud"),
        "waited_ms": {
            cause: milliseconds(seconds) for cause, seconds in sorted(counts.waited_s.items())
        },
        "bytes_per_token": mean(counts.bytes_sent + counts.bytes_received, counts.tokens),
        "ms_per_forward": _ms_each(counts.forward_s, counts.forwards),
        "tokens_per_block": mean(counts.block_tokens, counts.blocks),
        "bits_per_token": mean(counts.bits, counts.tokens) if counts.blocks else None,
        "resampling_rate": share(counts.resampled, counts.verified),
        "ms_per_verdict": _ms_each(counts.verify_s, counts.verified),
        **{name: getattr(counts, name) for name in SUMS},
        "absences": sum(counts.missing.values()),
        "conformal": None if dropped is None else dropped.to_json(),
    }


def ledger(answer: AnswerCounts) -> dict[str, Any]:
    """Return what left the device in an answer, to all other sides; files by their number."""
    return {
        "question_bytes": answer.question_bytes,
        "history_bytes": answer.history_bytes,
        "tokens_sent": answer.tokens_sent,
        "distributions_sent": answer.distributions_sent,
        "documents_named": answer.documents_named,
        "tokens_not_in_answer": answer.unused,
        "tokens_withheld": answer.tokens_withheld,
        "revealed_bits": None if answer.revealed is None else round(answer.revealed, 2),
        "evidence_bits": round(answer.evidence_bits, 2) if answer.weighed else None,
        "evidence_of_tokens": answer.weighed,
        "evidence_bits_of_files": [round(bits, 2) for bits in answer.file_bits],
    }


def milliseconds(seconds: float | None) -> float | None:
    """Return milliseconds, None for None."""
    return None if seconds is None else round(1000 * seconds, 3)


def median_ms(seconds: list[float]) -> float | None:
    """Return the median in milliseconds, None if there is none."""
    return milliseconds(median(seconds)) if seconds else None


def share(part: float, whole: float) -> float | None:
    """Return a share, None of nothing."""
    return round(part / whole, 4) if whole else None


def mean(total: float, count: int) -> float | None:
    """Return an average, None of nothing."""
    return round(total / count, 1) if count else None


def _ms_each(seconds: float, count: int) -> float | None:
    return milliseconds(seconds / count) if count else None


def acceptance(counts: Counts, *sides: Side) -> dict[Side, float | None]:
    """Return the share of each side's drafts that became tokens."""
    return {side: share(counts.accepted[side], counts.compared[side]) for side in sides}
