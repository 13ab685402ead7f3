"""How many requests a forward of vLLM may carry without changing the bits of one.

Kernels are chosen by the number of tokens, and a GPU's differ in their last bits unless vLLM is
told to be batch invariant (VLLM_BATCH_INVARIANT=1). So it is measured, at each start.
"""

import random
from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from dragonrt.backends.vllm_.backend import Engine

CANDIDATES = (32, 15, 7, 3)
_DOCUMENT, _OTHERS, _LONGEST = 40, 5, 90


def exact_rows(engine: Engine, vocabulary: int) -> int:
    """Return the most requests of a forward with the bits of requests alone; 0 if there is none.

    Compared are blocks of one text, and texts of several lengths together.
    """
    chance, keys = random.Random(0), count()

    def line(length: int) -> list[int]:
        return [chance.randrange(vocabulary) for _ in range(length)]

    def run(texts: Sequence[Sequence[int]]) -> list[Tensor]:
        of = [next(keys) for _ in texts]
        for key, text in zip(of, texts, strict=True):
            engine.add(key, text)
        while engine.busy:
            engine.step()
        return [row[0] for row in engine.take(of)]

    def block(most: int) -> list[list[int]]:
        return [text[: _DOCUMENT + n] for n in range(1, most + 1)]

    text = line(_DOCUMENT + CANDIDATES[0])
    others = [line(chance.randrange(1, _LONGEST)) for _ in range(_OTHERS)]
    for each in (text[:_DOCUMENT], *others):
        run([each])
    known = [run([each])[0] for each in (*block(CANDIDATES[0]), *others)]
    alone, beside = known[:-_OTHERS], known[-_OTHERS:]
    for most in CANDIDATES:
        together = min(most, _OTHERS)
        rest = most - together
        found = run([*others[:together], *block(rest)])
        wanted = [*beside[:together], *alone[:rest]]
        if all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)):
            return most
    return 0
