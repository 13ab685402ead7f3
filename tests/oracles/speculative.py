"""The text that every run of mode speculative must give."""

from collections.abc import Sequence

import numpy as np

from dragonrt.modes.prefix import TokenPrefix
from dragonrt.modes.speculative.settings import SpeculativeSettings
from tests.oracles.asked import Asked, Decide
from tests.oracles.brute_force import Coded, coded, looked_up, raced, verified


def oracle(asked: Asked, settings: SpeculativeSettings) -> Decide:
    """Return what decides: blocks of fixed length or of a bit budget, one after the other (SPEC 2).

    Where the rule is coupled they come to the text of one model alone, token by token.
    """
    seed, question = asked.seed, asked.question
    family, *arguments = settings.codec.split(":")
    by_id = settings.rule == "sample-quantize"  # drafts from what is not sent
    beta = float(arguments[0]) if family == "csqs" else None

    def moved(beta: float | None, dropped: float) -> float | None:
        return None if beta is None else beta - settings.learning_rate * (dropped - settings.target)

    def drafts(text: TokenPrefix) -> tuple[TokenPrefix, list[Coded]]:
        line, q, bits, at = TokenPrefix(text.hashes[0], text.tokens), list[Coded](), 0, beta
        longest = max(1, min(settings.length, question.max_tokens - len(text) - 1))
        _, copied = looked_up(asked.texts, text.tokens)
        if settings.draft == "lookup":
            longest = min(longest, len(copied))
        while len(q) < longest and not (q and line.tokens[-1] in question.stop_tokens):
            p = asked.law("device", line)
            if settings.draft == "lookup":
                p = np.eye(p.size)[copied[len(q)]]
            sent = coded(settings.codec, p, by_id=by_id, beta=at)
            bits += sent.bits
            if q and settings.budget is not None and bits > settings.budget:
                break
            q.append(sent)
            line.append(asked.draws(len(line), coded("ids", p) if by_id else sent))
            at = moved(at, sent.dropped)
        return line, q

    def decide(text: TokenPrefix) -> Sequence[int]:
        nonlocal beta
        first, alone = len(text), asked.course.alone(len(text))
        if settings.rule == "coupled":
            return [raced(seed, first, asked.law("device" if alone else "cloud", text))]
        if alone:
            return [asked.draws(first, coded("ids", asked.law("device", text)))]
        line, q = drafts(text)
        p = [asked.law("cloud", line, step) for step in range(first, len(line) + 1)]
        decided, accepted = verified(seed, first, line.tokens[first:], [each.p for each in q], p)
        # One update more, for the token that the cloud gave (SQS Alg. 1).
        for each in [*q, *q[-1:]][: accepted + 1]:
            beta = moved(beta, each.dropped)
        return decided

    return decide
