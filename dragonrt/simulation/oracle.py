"""The text that every run of a plan must give, computed step by step without any runtime.

Drafts and targets come from the same pure functions that the runtime calls, but nothing else
does: no queue, no line, no message. A run that differs has a defect (SPEC section 0).
"""

from dragonrt.distributions.codec import codec
from dragonrt.runtime.draft import extend_hash, start_hash
from dragonrt.runtime.drafter import quantize
from dragonrt.runtime.plan import Plan
from dragonrt.sampling.aggregation import Candidate, side_weights
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script


class Oracle:
    """What is right after a prefix, for one plan on scripted models; results are kept."""

    def __init__(self, plan: Plan, script: Script) -> None:
        self._plan = plan
        self._script = script
        self._rule = plan.aggregation_rule()
        self._codec = codec(plan.codec, script.vocabulary)
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
        p = self._script.distribution(side, prefix_hash)
        token, distribution, _ = quantize(p, side, step, self._rule, self._codec)
        return Candidate(token, distribution)


def oracle(plan: Plan, script: Script) -> list[int]:
    """The answer's tokens, the stop token included, as decided one after the other."""
    right = Oracle(plan, script)
    prefix_hash = start_hash(plan.seed)
    tokens: list[int] = []
    while len(tokens) < plan.max_tokens and not (tokens and tokens[-1] in plan.stop_tokens):
        token = right.target(len(tokens), prefix_hash)
        tokens.append(token)
        prefix_hash = extend_hash(prefix_hash, token)
    return tokens
