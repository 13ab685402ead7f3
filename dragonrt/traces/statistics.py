"""The numbers of an answer on the device, as `--json` and a conversation tell them."""

from collections.abc import Callable
from typing import Any

from dragonrt.traces.counts import AnswerCounts, acceptance, mean, milliseconds, ms_each, share


def statistics(
    answer: AnswerCounts, of_mode: Callable[[AnswerCounts], dict[str, Any]] = lambda answer: {}
) -> dict[str, Any]:
    """Numbers by name, of an answer that is over; those `of_mode` come last.

    None where there was nothing to measure.
    """
    counts, closed = answer.counts, answer.closed
    sent, received = (closed.bytes_sent, closed.bytes_received) if closed else (0, 0)
    total_s = None
    if answer.last_s is not None and answer.opened_s is not None:
        total_s = answer.last_s - answer.opened_s
    return {
        "tokens": counts.tokens,
        "time_to_first_token_ms": milliseconds(next(iter(counts.first_token_s), None)),
        "ms_per_token": ms_each(counts.between_s, counts.intervals),
        "total_ms": milliseconds(total_s),
        "bytes_sent": sent,
        "bytes_received": received,
        "bytes_per_token": mean(sent + received, counts.tokens),
        "padding_sent": closed.padding_sent if closed else 0,
        "padding_received": closed.padding_received if closed else 0,
        "held_ms": milliseconds(closed.held if closed else None),
        "rtt_ms": milliseconds(closed.rtt if closed else None),
        "acceptance": acceptance(counts),
        **of_mode(answer),
    }


def dragon(answer: AnswerCounts) -> dict[str, Any]:
    """Those of mode dragon."""
    counts = answer.counts
    return {
        "forwards": counts.forwards,
        "preempted": counts.preempted,
        "rollbacks": counts.rollbacks,
        "switches": counts.switches,
        "divergences": counts.divergences,
        "alone_from": answer.alone_from,
    }


def blocks(answer: AnswerCounts) -> dict[str, Any]:
    """Those of a mode that drafts blocks."""
    counts = answer.counts
    return {
        "acceptance": {"device": acceptance(counts)["device"]},
        "blocks": counts.blocks,
        "drafted": counts.block_tokens,
        "accepted": counts.stood,
        "resampled": counts.resampled,
        "resampling_rate": share(counts.resampled, counts.verified),
        # Sent and never judged: a block before them did not stand as guessed.
        "wasted": counts.block_tokens - counts.judged,
        "bits_up": counts.bits,
        "bits_per_token": mean(counts.bits, counts.tokens),
        "forwards": counts.forwards,
        "preempted": counts.preempted,
        "draft_ms": milliseconds(counts.forward_s),
        "verify_ms": milliseconds(counts.verify_s),
        "waited_ms": milliseconds(counts.verdicts_waited_s),
        "alone_from": answer.alone_from,
    }


def speculative(answer: AnswerCounts) -> dict[str, Any]:
    """Those of `blocks`, and what the cloud decoded and C-SQS dropped."""
    dropped_mass = answer.counts.dropped_mass
    conformal = {} if dropped_mass is None else {"conformal": dropped_mass.to_json()}
    return {**blocks(answer), "decoded_by_cloud": answer.counts.decoded, **conformal}


def sprinter(answer: AnswerCounts) -> dict[str, Any]:
    """`drafted` and `accepted` are those of SPRINTER's Theorem 7: tokens that passed count."""
    counts = answer.counts
    calls = counts.verified
    per_call = round(1 + counts.unverified / calls, 2) if calls else None
    return {
        **blocks(answer),
        "drafted": counts.unverified + counts.judged,
        "accepted": counts.unverified + counts.stood,
        "unverified": counts.unverified,
        "unread": counts.unread,
        "target_calls": calls,
        "tokens_per_target_call": per_call,
    }


def federated(answer: AnswerCounts) -> dict[str, Any]:
    """Of the rounds that decided something."""
    counts = answer.counts
    return {
        "acceptance": {"device": acceptance(counts)["device"]},
        "rounds": counts.verified,
        "drafted": counts.judged,
        "accepted": counts.stood,
        "resampled": counts.resampled,
        "waited_ms": milliseconds(counts.verdicts_waited_s),
        "missing": dict(counts.missing),
    }
