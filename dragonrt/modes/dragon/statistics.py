"""The figures of an answer in mode dragon."""

from typing import Any

from dragonrt.traces.counts import AnswerCounts


def figures(answer: AnswerCounts) -> dict[str, Any]:
    """Return the numbers of mode dragon."""
    names = ("forwards", "preempted", "rollbacks", "switches", "divergences", "alone_from")
    return {name: getattr(answer, name) for name in names}
