"""The figures of an answer in mode federated."""

from typing import Any

from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.statistics import acceptance, milliseconds


def figures(answer: AnswerCounts) -> dict[str, Any]:
    """Return the numbers of the rounds that decided tokens."""
    return {
        "acceptance": acceptance(answer, "device"),
        "rounds": answer.verified,
        "drafted": answer.judged,
        "accepted": answer.accepted_tokens,
        "resampled": answer.resampled,
        "waited_ms": milliseconds(answer.verdicts_waited_s),
        "missing": dict(answer.missing),
    }
