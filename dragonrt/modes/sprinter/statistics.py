"""The figures of an answer in mode sprinter."""

from typing import Any

from dragonrt.modes.blocks.statistics import blocks
from dragonrt.traces.counts import AnswerCounts


def figures(answer: AnswerCounts) -> dict[str, Any]:
    """Return `drafted` and `accepted` of SPRINTER's Theorem 7, which counts tokens that passed."""
    calls = answer.verified
    return {
        **blocks(answer),
        "drafted": answer.unverified + answer.judged,
        "accepted": answer.unverified + answer.accepted_tokens,
        "unverified": answer.unverified,
        "unread": answer.unread,
        "target_calls": calls,
        "tokens_per_target_call": round(1 + answer.unverified / calls, 2) if calls else None,
    }
