"""How many requests a forward of vLLM may carry without changing the bits of one.

Kernels are chosen by the number of tokens, and a GPU's differ in their last bits unless vLLM is
told to be batch invariant (VLLM_BATCH_INVARIANT=1). So it is measured, at each start.
"""

import random
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from dragonrt.backends.vllm_.engine import Engine

CANDIDATES = (32, 15, 7, 3)
STARTS = (40, 256, 1024)
"""Tokens of a text, behind which one token after another is read: kernels may differ."""
_OTHERS = (11, 90, 33, 64, 5)
"""Tokens of texts beside it."""


def exact_rows(engine: Engine, vocabulary: int, longest: int) -> int:
    """Return the most requests of a forward with the bits of requests alone; 0 if there is none.

    Compared with a request that stays open are blocks of its text, and other texts beside them,
    behind each of the STARTS that a text of `longest` tokens has room for.
    """
    room = min(longest, engine.block_size * (engine.kv_blocks // 2)) - CANDIDATES[0]
    return min(_exact_rows(engine, vocabulary, start) for start in STARTS if start < max(room, 41))


def _exact_rows(engine: Engine, vocabulary: int, start: int) -> int:
    chance, numbers = random.Random(0), count()

    def run(texts: Sequence[list[int]], goes_on: int | None = None) -> list[Tensor]:
        keys = [next(numbers) for _ in texts] if goes_on is None else [goes_on]
        for key, text in zip(keys, texts, strict=True):
            engine.add(key, text, goes_on is not None)
        while engine.busy:
            engine.step()
        return [row[0] for row in engine.take(keys)]

    text, *others = (
        [chance.randrange(vocabulary) for _ in range(length)]
        for length in (start + CANDIDATES[0], *_OTHERS)
    )
    run([text[:start]])
    goes_on = next(numbers)
    known = run([text[: start + 1]], goes_on)
    for token in text[start + 1 :]:
        known += run([[token]], goes_on)
    engine.abort([goes_on])
    beside = [run([each])[0] for each in others]
    for most in CANDIDATES:
        together = min(most, len(others))
        block = [text[: start + n] for n in range(1, most - together + 1)]
        found = run([*others[:together], *block])
        if all(map(torch.equal, found, [*beside[:together], *known[: len(block)]])):
            return most
    return 0
