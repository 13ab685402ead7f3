"""The text that every run of a plan must give, computed step by step without any runtime.

Drafts and targets come from the same pure functions that the runtime calls, but nothing else
does: no queue, no line, no message. A run that differs has a defect (SPEC section 0).
"""

from dragonrt.distributions.codec import codec
from dragonrt.runtime.draft import extend_hash, start_hash
from dragonrt.runtime.drafter import quantize
from dragonrt.runtime.plan import Plan
from dragonrt.sampling.aggregation import Candidate, side_weights
from dragonrt.sampling.noise import Side
from dragonrt.simulation.drafter import Script


def oracle(plan: Plan, script: Script) -> list[int]:
    """The answer's tokens, the stop token included, as decided one after the other."""
    rule, bits = plan.aggregation_rule(), codec(plan.codec, script.vocabulary)
    prefix_hash = start_hash(plan.seed)
    tokens: list[int] = []

    def candidate(side: Side) -> Candidate:
        p = script.distribution(side, prefix_hash)
        token, distribution, _ = quantize(p, side, len(tokens), rule, bits)
        return Candidate(token, distribution)

    while len(tokens) < plan.max_tokens and not (tokens and tokens[-1] in plan.stop_tokens):
        device, cloud = candidate("device"), candidate("cloud")
        weights = side_weights(
            script.relevance("device", prefix_hash), script.relevance("cloud", prefix_hash)
        )
        token = rule.target(len(tokens), device, cloud, weights)
        tokens.append(token)
        prefix_hash = extend_hash(prefix_hash, token)
    return tokens
