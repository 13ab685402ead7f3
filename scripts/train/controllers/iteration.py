"""How long one iteration of edge-cloud speculative decoding takes (SPEC 2; QSV Eq. 7 - 9)."""

import math


def iteration_latency(
    length: int,
    bits: float,
    *,
    vocabulary: int,
    draft_s: float,
    target_s: float,
    up_rate: float,
    down_rate: float,
) -> float:
    """T = L T_slm + L (log2 V + b) / R_up + T_llm + log2(V (L + 1)) / R_down, in seconds.

    `length` tokens are drafted in `draft_s` seconds each, and verified together in `target_s`;
    `bits` describe the distribution of each, on average. Rates in bit/s, `math.inf` where the
    link takes no time. Propagation delay and framing are not part of the model.
    """
    up_bits = length * (math.log2(vocabulary) + bits)
    down_bits = math.log2(vocabulary * (length + 1))
    return length * draft_s + up_bits / up_rate + target_s + down_bits / down_rate
