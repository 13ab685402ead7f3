"""Measure how many tokens a forward of llama.cpp may have without changing the bits of a row.

Kernels are chosen by the number of tokens, and differ in their last bits. Which number is still
exact depends on the types of the weights, the processor and the library, so it is measured: once,
in about a second.
"""

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dragonrt.backends.llama_cpp.cache import models_directory
from dragonrt.backends.llama_cpp.context import LARGEST_FORWARD, Batch, Context, Floats
from dragonrt.backends.llama_cpp.model import LlamaModel
from dragonrt.backends.llama_cpp.states import State
from retrieval.files import create, make_directory

CANDIDATES = (63, 31, 15, 7, 3, 2)
"""From 64 tokens on llama.cpp takes another kernel of attention."""

_DOCUMENT, _ROWS = 40, 5
_COMPARED = 250
"""Rows of logits that each number is judged by: a difference may vanish in most of them."""


@dataclass(frozen=True, slots=True)
class Exactness:
    """The result: `tokens` of an exact forward (0: not even two are), and KV `bytes` of a token."""

    tokens: int
    bytes: int


def exactness(context: Context, model: LlamaModel, *names: str) -> Exactness:
    """Return the result for a model; it is kept for these `names`, the library and the processor.

    Leaves no sequence of the context open.
    """
    library = model.library
    known = (*names, library.name, library.instructions, platform.machine(), _processor())
    key = hashlib.sha256("\n".join(known).encode()).hexdigest()[:32]
    path = models_directory() / f"exact-{key}.json"
    with suppress(OSError, ValueError, TypeError):
        return Exactness(**json.loads(path.read_text(encoding="ascii")))
    found = SelfTest(context, model.vocabulary).run()
    with suppress(OSError):  # it is measured again the next time
        make_directory(path.parent)
        part = path.with_suffix(f".{os.getpid()}.tmp")
        with create(part) as file:
            file.write(json.dumps(asdict(found)).encode())
        part.replace(path)
    return found


def _processor() -> str:
    """Return the name of the processor on Linux, else what the platform says."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith("model name")), "")
    return platform.processor()


class SelfTest:
    """Compares forwards of several tokens and rows with those of one token, bit by bit."""

    def __init__(self, context: Context, vocabulary: int) -> None:
        self._context, self._chance = context, np.random.default_rng(0)
        self._line = [int(n) for n in self._chance.integers(0, vocabulary, _DOCUMENT + 63)]

    def run(self) -> Exactness:
        """Measure."""
        first = self._context.open(1, len(self._line))
        self._read(first[0], 0, _DOCUMENT, LARGEST_FORWARD)
        document = self._context.save(first[0])
        rows = self._context.open(_ROWS, len(self._line))  # the state moves into a larger context
        try:
            self._context.load(rows[0], document)
            wanted = [
                self._read(rows[0], at, at + 1, 1) for at in range(_DOCUMENT, len(self._line))
            ]
            size = (self._context.save(rows[0]).size - document.size) // len(wanted)
            alone = np.concatenate(wanted)
            exact = (n for n in CANDIDATES if self._is_exact(n, rows, document, alone))
            return Exactness(next(exact, 0), size)
        finally:
            self._context.release(first)
            self._context.release(rows)

    def _is_exact(self, most: int, rows: range, document: State, alone: Floats) -> bool:
        """Return whether forwards of `most` tokens give all rows the bits of single steps."""
        for row in rows:
            self._context.load(row, document)
        block = self._read(rows[-1], _DOCUMENT, _DOCUMENT + most, most)
        if not np.array_equal(block, alone[:most]):
            return False
        places = dict.fromkeys(rows[:most], 0)
        for _ in range(_COMPARED // most):
            sizes = dict(zip(places, self._sizes(most, len(places)), strict=True))
            batch = Batch()
            for row, size in sizes.items():
                if places[row] + size > len(alone):  # roll back
                    places[row] = int(self._chance.integers(0, len(alone) - size + 1))
                self._context.cut(row, _DOCUMENT + places[row])
                for at in range(_DOCUMENT + places[row], _DOCUMENT + places[row] + size):
                    batch.add(self._line[at], at, row, True)
            found = self._context.forward(batch, (), most=most, hidden=False)
            parts = [alone[places[row] : places[row] + size] for row, size in sizes.items()]
            if found is None or not np.array_equal(found.logits, np.concatenate(parts)):
                return False
            places = {row: places[row] + size for row, size in sizes.items()}
        return True

    def _sizes(self, tokens: int, rows: int) -> list[int]:
        """Return random sizes of blocks, one per row, of so many tokens together."""
        cuts = sorted(self._chance.choice(np.arange(1, tokens), rows - 1, replace=False).tolist())
        return [b - a for a, b in zip([0, *cuts], [*cuts, tokens], strict=True)]

    def _read(self, row: int, start: int, stop: int, most: int) -> Floats:
        batch = Batch()
        for at in range(start, stop):
            batch.add(self._line[at], at, row, True)
        self._context.cut(row, start)
        found = self._context.forward(batch, (), most=most, hidden=False)
        assert found is not None  # without a preemption nothing stops it
        return found.logits
