"""Speculative decoding on scripted models: answers over simulated links, and what they must be."""

from collections.abc import Callable

from dragonrt.distributions import Distribution, Quantized, Step, backtrack
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.modes.blocks import BlockAsking, OnLoss
from dragonrt.runtime.modes.speculative import SpeculativePlan, beginning
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.races import race_at
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.pair import SimulatedDevice


def block_asking(
    device: SimulatedDevice,
    plan: SpeculativePlan,
    on_loss: OnLoss = "alone",
    on_token: Callable[[int], None] = lambda token: None,
) -> BlockAsking:
    """An answer that can be asked for; its notices are in the Answer."""
    begin = beginning(device.side, device.connector, on_loss)
    return begin(plan, lambda decision: on_token(decision.token), lambda text: None)


def coupled_oracle(plan: SpeculativePlan, script: Script) -> list[int]:
    """The text of the cloud's model alone, token by token: what coupled blocks must give."""
    noise = Noise(plan.seed)
    line = Line(start_hash(plan.seed))
    while not _is_complete(plan, line.tokens):
        p = plan.sampler.dense(script.distribution("cloud", line.hash).astype("float32"))
        line.append(race_at(noise, len(line), Distribution.from_dense(p)))
    return line.tokens


def rejection_oracle(plan: SpeculativePlan, script: Script) -> list[int]:
    """The text of blocks of fixed length or of a bit budget, one after the other.

    Computed from the pure functions alone: no line is drafted ahead, nothing is sent.
    """
    rule, codec = plan.speculative_rule(), plan.block_codec(script.vocabulary)
    shape = plan.shape
    text: list[int] = []
    threshold = plan.first_threshold()
    while not _is_complete(plan, text):
        line = Line(start_hash(plan.seed), text)
        drafted: list[tuple[int, Quantized]] = []
        longest = max(1, min(shape.length, plan.max_tokens - len(text) - 1))
        bits, at = 0, threshold
        while len(drafted) < longest and line.tokens[len(text) :][-1:] not in _stops(plan):
            q = rule.shape(script.distribution("device", line.hash).astype("float32"))
            quantized = codec.quantize(q, Step(len(line), None, None if at is None else at.beta))
            bits += quantized.bits + quantized.token_bits
            if drafted and shape.budget is not None and bits > shape.budget:
                break
            source = quantized.distribution
            if not rule.drafts_from_quantized:
                source = Distribution.from_dense(q)
            token = rule.draft(len(line), source)
            drafted.append((token, quantized))
            line.append(token)
            at = at.after(quantized.dropped) if at is not None else None
        tokens = [token for token, _ in drafted]
        p = [
            rule.shape(script.distribution("cloud", each).astype("float32"))
            for each in line.hashes[len(text) :]
        ]
        verdict = rule.verify(len(text), tokens, [one.distribution for _, one in drafted], p)
        if threshold is not None:
            dropped = [one.dropped for _, one in drafted]
            threshold = backtrack(threshold, dropped, verdict.accepted)
        for token in (*tokens[: verdict.accepted], verdict.token):
            if not _is_complete(plan, text):
                text.append(token)
    return text


def _stops(plan: SpeculativePlan) -> list[list[int]]:
    return [[token] for token in plan.stop_tokens]


def _is_complete(plan: SpeculativePlan, text: list[int]) -> bool:
    return len(text) >= plan.max_tokens or text[-1:] in _stops(plan)
