"""The text that every run of mode federated must give."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.prefix import TokenPrefix
from tests.oracles.asked import Asked, Decide
from tests.oracles.brute_force import Coded, coded, mixed, sampled, verified


def oracle(asked: Asked, settings: FederatedSettings) -> Decide:
    """Return what decides: rounds of a block each, by the mixture of the uploads (SPEC 3)."""
    seed, question = asked.seed, asked.question

    def target(line: TokenPrefix, step: int, weights: Mapping[str, float]) -> NDArray[np.float64]:
        names = [name for name in asked.models if name in weights]
        uploads = [coded(settings.codec, asked.p(name, line, step)) for name in names]
        return sampled(question.sampler, mixed(uploads, [weights[name] for name in names]))

    def decide(text: TokenPrefix) -> Sequence[int]:
        first, line, q = len(text), TokenPrefix(text.hashes[0], text.tokens), list[Coded]()
        weights, length = asked.course.weights(first), question.max_tokens - first - 1
        # What was drafted does not matter where the rule is coupled: a block may be empty.
        length = 0 if settings.rule == "coupled" else min(settings.block_tokens, length)
        while len(q) < length and not (q and line.tokens[-1] in question.stop_tokens):
            q.append(coded("ids", asked.law("device", line)))
            line.append(asked.draws(len(line), q[-1]))
        p = [target(line, step, weights) for step in range(first, len(line) + 1)]
        return verified(seed, first, line.tokens[first:], [each.p for each in q], p)[0]

    return decide
