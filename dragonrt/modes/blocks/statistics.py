"""The figures of an answer that is drafted in blocks."""

from typing import Any

from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.statistics import acceptance, mean, milliseconds, share


def blocks(answer: AnswerCounts) -> dict[str, Any]:
    """Return the numbers of a mode that drafts blocks."""
    return {
        "acceptance": acceptance(answer, "device"),
        "blocks": answer.blocks,
        "drafted": answer.block_tokens,
        "accepted": answer.accepted_tokens,
        "resampled": answer.resampled,
        "resampling_rate": share(answer.resampled, answer.verified),
        # Sent and never judged: a block before them was not accepted as guessed.
        "wasted": answer.block_tokens - answer.judged,
        "bits_up": answer.bits,
        "bits_per_token": mean(answer.bits, answer.tokens),
        "forwards": answer.forwards,
        "preempted": answer.preempted,
        "draft_ms": milliseconds(answer.forward_s),
        "verify_ms": milliseconds(answer.verify_s),
        "waited_ms": milliseconds(answer.verdicts_waited_s),
        "alone_from": answer.alone_from,
    }
