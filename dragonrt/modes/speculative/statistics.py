"""The figures of an answer in mode speculative."""

from typing import Any

from dragonrt.modes.blocks.statistics import blocks
from dragonrt.traces.counts import AnswerCounts


def figures(answer: AnswerCounts) -> dict[str, Any]:
    """Return those of `blocks`, the cloud's own tokens, and the mass that C-SQS dropped."""
    dropped = answer.dropped_mass
    conformal = {} if dropped is None else {"conformal": dropped.to_json()}
    return {**blocks(answer), "decoded_by_cloud": answer.decoded, **conformal}
