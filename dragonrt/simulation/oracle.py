"""The text that every run must give, computed step by step without any runtime, for every mode.

Drafts, verdicts and targets come from the same pure functions that the modes call, but nothing else
does: no queue, no block under way, no message. A run that differs has a defect (SPEC section 0).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import (
    ConformalThreshold,
    Distribution,
    Quantized,
    Step,
    backtrack,
    codec,
)
from dragonrt.modes.line import Line, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.modes.sprinter import TokenVerifier
from dragonrt.sampling.aggregation import Candidate, rule, side_weights
from dragonrt.sampling.approximation import verify_last
from dragonrt.sampling.mixing import mixture
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.races import race_at
from dragonrt.sampling.verification import CoupledSpeculation, SpeculativeRule, speculative_rule
from dragonrt.side import Side
from dragonrt.simulation.scripted import SimulatedModel

Models = Mapping[str, SimulatedModel]
"""What says what: "device", and the other sides by their names, in the order of the members."""

Decide = Callable[[Line], Sequence[int]]
"""The tokens that are decided next, at once, after a decided text; some may lie beyond its end."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """Who took part, which is the one thing that a text may depend on beside what is asked.

    `alone` says whether the device decided a step without the cloud, `weights` those of the round
    that decided a step, by worker.
    """

    alone: Callable[[int], bool] = lambda step: False
    weights: Callable[[int], Mapping[str, float]] = lambda step: {"cloud": 1.0}


def oracle(
    question: Question,
    settings: Settings,
    models: Models,
    course: Attendance | None = None,
    verifier: TokenVerifier | None = None,
) -> list[int]:
    """The answer's tokens, the accepted ones and the stop token included.

    Without a `course` the other side is there all the time. `verifier` is the sprinter's.
    """
    decide = _decider(question, settings, models, course or Attendance(), verifier)
    text = Line(start_hash(question.seed), question.accepted)
    while not _is_complete(question, text.tokens):
        for token in decide(text):
            if not _is_complete(question, text.tokens):
                text.append(token)
    return text.tokens


def _is_complete(question: Question, text: Sequence[int]) -> bool:
    stopped = bool(text) and text[-1] in question.stop_tokens
    return stopped or len(text) >= question.max_tokens


def _decider(
    question: Question,
    settings: Settings,
    models: Models,
    course: Attendance,
    verifier: TokenVerifier | None,
) -> Decide:
    match settings:
        case DragonSettings():
            return _dragon(question, settings, models, course)
        case SpeculativeSettings(rule=CoupledSpeculation.name):
            return _target_alone(question, models, course)
        case SpeculativeSettings():
            return _speculative(question, settings, models, course)
        case FederatedSettings():
            return _federated(question, settings, models, course)
        case SprinterSettings():
            if verifier is None:
                raise ValueError("a sprinter's text depends on its verifier")
            return _sprinter(question, settings, models, course, verifier)


def _p(models: Models, name: str, text: Line) -> NDArray[np.float32]:
    return models[name].said(len(text), text.hash).p


def _vocabulary(models: Models) -> int:
    return models["device"].said(0, 0).p.size


def _dragon(
    question: Question, settings: DragonSettings, models: Models, course: Attendance
) -> Decide:
    """Each step from the two sides' distributions after the decided text (SPEC 1)."""
    by = rule(settings.rule, Noise(question.seed), question.sampler)
    code = codec(settings.codec_for(question.sampler), _vocabulary(models))

    def candidate(side: Side, text: Line) -> tuple[Candidate, float]:
        said, step = models[side].said(len(text), text.hash), len(text)
        q = code.quantize(by.shape(said.p), Step(step)).distribution
        # Of a race, too, the whole distribution counts here, not what is listed of it.
        distribution = Distribution(q.ids, q.probabilities, q.rest, q.vocabulary)
        return Candidate(by.draft(side, step, distribution), distribution), said.relevance

    def decide(text: Line) -> list[int]:
        device, h_device = candidate("device", text)
        if course.alone(len(text)):
            return [device.token]
        cloud, h_cloud = candidate("cloud", text)
        return [by.target(len(text), device, cloud, side_weights(h_device, h_cloud))]

    return decide


def _target_alone(question: Question, models: Models, course: Attendance) -> Decide:
    """The text of one model alone, token by token: what coupled blocks come to (SPEC 2)."""
    noise = Noise(question.seed)

    def decide(text: Line) -> list[int]:
        name = "device" if course.alone(len(text)) else "cloud"
        p = question.sampler.dense(_p(models, name, text))
        return [race_at(noise, len(text), Distribution.from_dense(p))]

    return decide


def _speculative(
    question: Question, settings: SpeculativeSettings, models: Models, course: Attendance
) -> Decide:
    """Blocks of fixed length or of a bit budget, one after the other (SPEC 2)."""
    by = speculative_rule(settings.rule, Noise(question.seed), question.sampler)
    by_id = not by.drafts_from_quantized
    code = codec(settings.codec, _vocabulary(models), tokens_by_id=by_id)
    family, *arguments = settings.codec.split(":")
    threshold = None
    if family == "csqs":
        threshold = ConformalThreshold(float(arguments[0]), settings.learning_rate, settings.target)

    def decide(text: Line) -> list[int]:
        nonlocal threshold
        first = len(text)
        if course.alone(first):
            alone = Distribution.from_dense(by.shape(_p(models, "device", text)))
            return [by.draft(first, alone)]
        line = Line(text.hashes[0], text.tokens)
        drafted: list[Quantized] = []
        bits, at = 0, threshold
        while len(line) - first < max(1, min(settings.length, question.max_tokens - first - 1)):
            step = Step(len(line), None, None if at is None else at.beta)
            dense = by.shape(_p(models, "device", line))
            quantized = code.quantize(dense, step)
            bits += quantized.bits + quantized.token_bits
            if drafted and settings.budget is not None and bits > settings.budget:
                break
            drafted.append(quantized)
            source = Distribution.from_dense(dense) if by_id else quantized.distribution
            line.append(by.draft(len(line), source))
            at = at.after(quantized.dropped) if at is not None else None
            if line.tokens[-1] in question.stop_tokens:
                break
        q = [each.distribution for each in drafted]
        p = [by.shape(models["cloud"].said(n, line.hashes[n]).p) for n in _steps(first, line)]
        decided, accepted = _judged(by, first, line, q, p)
        if threshold is not None:
            threshold = backtrack(threshold, [each.dropped for each in drafted], accepted)
        return decided

    return decide


def _federated(
    question: Question, settings: FederatedSettings, models: Models, course: Attendance
) -> Decide:
    """Rounds: a block of the device's, decided by the mixture of the uploads (SPEC 3)."""
    by = speculative_rule(settings.rule, Noise(question.seed), question.sampler)
    code = codec(settings.codec, _vocabulary(models))
    coupled = settings.rule == CoupledSpeculation.name

    def target(line: Line, step: int, weights: Mapping[str, float]) -> NDArray[np.float64]:
        taking_part = [name for name in models if name in weights]
        uploads = [
            code.quantize(models[name].said(step, line.hashes[step]).p, Step(step)).distribution
            for name in taking_part
        ]
        return by.shape(mixture(uploads, [weights[name] for name in taking_part]))

    def decide(text: Line) -> list[int]:
        first, line = len(text), Line(text.hashes[0], text.tokens)
        weights = course.weights(first)
        q: list[Distribution] = []
        length = min(settings.block_tokens, question.max_tokens - first - 1)
        # What was drafted does not matter where the rule is coupled: a block may be empty.
        while not coupled and len(q) < length:
            q.append(Distribution.from_dense(by.shape(_p(models, "device", line))))
            line.append(by.draft(len(line), q[-1]))
            if line.tokens[-1] in question.stop_tokens:
                break
        p = [target(line, step, weights) for step in _steps(first, line)]
        return _judged(by, first, line, q, p)[0]

    return decide


def _steps(first: int, line: Line) -> range:
    """The steps of a block on a line, and the one behind it."""
    return range(first, len(line) + 1)


def _judged(
    by: SpeculativeRule,
    first: int,
    line: Line,
    q: Sequence[Distribution],
    p: Sequence[NDArray[np.float64]],
) -> tuple[list[int], int]:
    """What a block comes to, and how many of its tokens stand."""
    drafted = line.tokens[first:]
    verdict = by.verify(first, drafted, q, p)
    return [*drafted[: verdict.accepted], verdict.token], verdict.accepted


def _sprinter(
    question: Question,
    settings: SprinterSettings,
    models: Models,
    course: Attendance,
    verifier: TokenVerifier,
) -> Decide:
    """SPRINTER Algorithm 2: a token stands where the verifier says so, else the target decides."""
    noise = Noise(question.seed)
    by = speculative_rule(settings.rule, noise, question.sampler)
    code = codec(settings.codec, _vocabulary(models))
    threshold = verifier.threshold if settings.threshold is None else settings.threshold
    run = 0  # tokens since the target's last

    def decide(text: Line) -> list[int]:
        nonlocal run
        step = len(text)
        said = models["device"].said(step, text.hash)
        q = code.quantize(by.shape(said.p), Step(step)).distribution
        token, run = by.draft(step, q), run + 1
        if course.alone(step):
            return [token]
        likely = verifier.probability(said.hidden, said.p, token)
        if likely < threshold or run >= settings.run_length:
            p = by.shape(_p(models, "cloud", text))
            _, token = verify_last(token, q, p, noise, step)
            run = 0
        return [token]

    return decide
