"""The text that every run must give, computed step by step without any runtime, for every mode.

Drafts and targets come from the same pure functions that the modes call, but nothing else does: no
queue, no line, no message. A run that differs has a defect (SPEC section 0).
"""

from dragonrt.distributions import Step, codec
from dragonrt.modes.line import extend_hash, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.aggregation import Candidate, rule, side_weights
from dragonrt.sampling.noise import Noise
from dragonrt.side import Side
from dragonrt.simulation.model import Script


class Oracle:
    """What is right after a prefix, for one question on scripted models; results are kept."""

    def __init__(self, question: Question, settings: DragonSettings, script: Script) -> None:
        self._script = script
        self._rule = rule(settings.rule, Noise(question.seed), question.sampler)
        self._codec = codec(settings.codec, script.vocabulary)
        self._targets: dict[int, int] = {}

    def target(self, step: int, prefix_hash: int) -> int:
        """The token that both sides together decide after the prefix with this hash."""
        token = self._targets.get(prefix_hash)
        if token is None:
            device, cloud = (
                self._candidate("device", step, prefix_hash),
                self._candidate("cloud", step, prefix_hash),
            )
            weights = side_weights(
                self._script.relevance("device", prefix_hash),
                self._script.relevance("cloud", prefix_hash),
            )
            token = self._targets[prefix_hash] = self._rule.target(step, device, cloud, weights)
        return token

    def alone(self, step: int, prefix_hash: int) -> int:
        """The token that the device decides there while the cloud is gone: its own draft."""
        return self._candidate("device", step, prefix_hash).token

    def _candidate(self, side: Side, step: int, prefix_hash: int) -> Candidate:
        p = self._script.distribution(side, prefix_hash).astype("float32")
        distribution = self._codec.quantize(self._rule.shape(p), Step(step)).distribution
        return Candidate(self._rule.draft(side, step, distribution), distribution)


def oracle(question: Question, settings: DragonSettings, script: Script) -> list[int]:
    """The answer's tokens, the stop token included, as decided one after the other."""
    right = Oracle(question, settings, script)
    prefix_hash = start_hash(question.seed)
    tokens: list[int] = []
    stops = question.stop_tokens
    while len(tokens) < question.max_tokens and not (tokens and tokens[-1] in stops):
        token = right.target(len(tokens), prefix_hash)
        tokens.append(token)
        prefix_hash = extend_hash(prefix_hash, token)
    return tokens
