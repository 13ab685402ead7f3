"""The text at level `redacted` and what the cloud reads of it, by definition (SPEC 1.10).

Computed step by step, with r(x) made anew from the whole text each time: nothing is shared with the
mode but the pure functions of a step.
"""

from collections.abc import Sequence
from itertools import groupby

from dragonrt.distributions import Step, codec
from dragonrt.modes.line import Line, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.aggregation import Candidate, rule, side_weights
from dragonrt.sampling.noise import Noise
from dragonrt.side import Side
from dragonrt.simulation.oracle import Attendance, Models

Decisions = Sequence[tuple[int, bool]]
"""Tokens, each with whether it is withheld."""


def read_by_cloud(decisions: Decisions, marker: Sequence[int]) -> list[int]:
    """r(x): a marker for each maximal run of withheld tokens."""
    read: list[int] = []
    for withheld, run in groupby(decisions, key=lambda each: each[1]):
        read += marker if withheld else [token for token, _ in run]
    return read


def redacted_oracle(
    question: Question,
    settings: DragonSettings,
    models: Models,
    marker: Sequence[int],
    course: Attendance | None = None,
) -> list[tuple[int, bool]]:
    """The answer's decisions; accepted tokens, and all that the device decides alone, are withheld.

    A token is withheld where the mixture gives it more than `settings.withhold` times what the
    cloud gives it after r(x).
    """
    course = course or Attendance()
    by = rule(settings.rule, Noise(question.seed), question.sampler)
    code = codec(settings.codec_for(question.sampler), models["device"].said(0, 0).p.size)

    def candidate(side: Side, step: int, text: Line) -> tuple[Candidate, float]:
        said = models[side].said(len(text), text.hash)
        p = code.quantize(by.shape(said.p), Step(len(text))).distribution
        return Candidate(by.draft(side, step, p), p), said.relevance

    decisions = [(token, True) for token in question.accepted]
    while not _is_complete(question, decisions):
        step, start = len(decisions), start_hash(question.seed)
        device, h_device = candidate("device", step, Line(start, [each for each, _ in decisions]))
        if course.alone(step):
            decisions.append((device.token, True))
            continue
        cloud, h_cloud = candidate("cloud", step, Line(start, read_by_cloud(decisions, marker)))
        weights = side_weights(h_device, h_cloud)
        token = by.target(step, device, cloud, weights)
        p, q = (each.distribution.probability(token) for each in (device, cloud))
        withheld = weights[0] * p + weights[1] * q > settings.withhold * q
        decisions.append((token, withheld))
    return decisions


def _is_complete(question: Question, decisions: Decisions) -> bool:
    stopped = bool(decisions) and decisions[-1][0] in question.stop_tokens
    return stopped or len(decisions) >= question.max_tokens
