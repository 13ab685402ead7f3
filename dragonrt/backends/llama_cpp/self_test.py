"""Measure which llama.cpp forwards of many tokens have the same bits as forwards of one token.

Kernels are chosen by the number of tokens and by the length of a row, and differ in their last
bits. Which forwards are exact depends on the types of the weights, the processor, the library and
the number of threads, so it is measured: once, in some seconds.
"""

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dragonrt.backends.llama_cpp.context import LARGEST_FORWARD, Context, Floats, State, Token
from dragonrt.backends.llama_cpp.library import LlamaModel
from dragonrt.backends.llama_cpp.model_file import models_directory
from retrieval.files import create, make_directory

CANDIDATES = (63, 31, 15, 7, 3, 2)
"""From 64 tokens on llama.cpp takes another kernel of attention."""

STARTS = (0, 256, 512, 1024)
"""Tokens of a row before those that are compared: llama.cpp pads a row to a multiple of 256."""

_VERSION = 3  # of this test: results of another one are not read
_PADDING = 256
_ROWS, _ROWS_OF_LONG = 5, 3  # long ones take memory
_LENGTH, _LENGTH_OF_LONG = 63, 24  # and time
_COMPARED, _COMPARED_OF_LONG = 250, 60
"""Rows of logits that each number is judged by: a difference may vanish in most of them."""
_STEPS = 8
"""Single steps that show whether they depend on the number of threads."""


@dataclass(frozen=True, slots=True)
class Exactness:
    """The result of a model's self-test: which forwards have the same bits as single tokens.

    Attributes:
        tokens: the most rows times tokens of such a forward; 0: not even two have these bits.
        bytes: the bytes of KV that one token takes in one row.
        single_from: the position from which a token read alone gets other bits; None: nowhere.
    """

    tokens: int
    bytes: int
    single_from: int | None


def exactness(model: LlamaModel, threads: int, adapter: int, weights: str) -> Exactness:
    """Return which forwards of a model have the bits of single tokens; measure it if not stored.

    `adapter` is llama.cpp's pointer to a LoRA, 0 for none. Results are stored by `weights` (the
    fingerprint of model and LoRA), number of threads, library and processor.
    """
    library = model.library
    known = (
        f"{_VERSION}",
        f"{threads}",
        weights,
        library.name,
        library.instructions,
        platform.machine(),
        _processor(),
    )
    key = hashlib.sha256("\n".join(known).encode()).hexdigest()[:32]
    path = models_directory() / f"exact-{key}.json"
    with suppress(OSError, ValueError, TypeError):
        return Exactness(**json.loads(path.read_text(encoding="ascii")))
    found = SelfTest(model, threads, adapter).run()
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
    """Compares larger forwards of a model with those of one token, bit by bit, for `exactness`."""

    def __init__(self, model: LlamaModel, threads: int, adapter: int) -> None:
        self._model, self._chance = model, np.random.default_rng(0)
        room = model.context_length - _LENGTH
        self._starts = [start for start in STARTS if start < max(1, room)]
        length = self._starts[-1] + _LENGTH
        self._line = [int(n) for n in self._chance.integers(0, model.vocabulary, length)]
        self._context = Context(model, threads, _ROWS, length, adapter)
        self._states: dict[int, State] = {}
        self._alone: dict[int, Floats] = {}

    def run(self) -> Exactness:
        context = self._context
        for before, start in pairwise((0, *self._starts, len(self._line))):
            if start > before:
                self._read(0, before, start, LARGEST_FORWARD, is_wanted=False)
            self._states[start] = context.save(0)
        context.single_from = self._single_from()
        sizes = self._states[len(self._line)].size - self._states[0].size
        exact = (
            most for most in CANDIDATES if all(self._is_exact(most, at) for at in self._starts)
        )
        tokens = 0 if self._model.has_planes else next(exact, 0)  # see `Context._empty`
        return Exactness(tokens, sizes // len(self._line), context.single_from)

    def _single_from(self) -> int | None:
        """Return from where single steps depend on the number of threads."""
        if self._context.threads == 1:
            return None
        for before, start in pairwise((-_PADDING, *self._starts)):
            split, whole = (self._steps(start, single_from) for single_from in (None, 0))
            if not np.array_equal(split, whole):
                return before + _PADDING
        return None

    def _steps(self, start: int, single_from: int | None) -> Floats:
        self._context.single_from = single_from
        self._context.load(0, self._states[start])
        return self._read(0, start, start + _STEPS, 1)

    def _is_exact(self, most: int, start: int) -> bool:
        """Return whether forwards of `most` tokens give all rows the bits of single steps."""
        of_short = (_ROWS, _LENGTH, _COMPARED)
        of_long = (_ROWS_OF_LONG, _LENGTH_OF_LONG, _COMPARED_OF_LONG)
        count, length, compared = of_long if start else of_short
        rows = range(count)
        for row in rows:
            self._context.load(row, self._states[start])
        if start not in self._alone:
            self._alone[start] = self._read(0, start, start + length, 1)
        alone = self._alone[start]
        block = self._read(rows[-1], start, start + length, most)
        return np.array_equal(block, alone) and self._is_exact_together(
            most, start, rows, alone, compared
        )

    def _is_exact_together(
        self, most: int, start: int, rows: range, alone: Floats, compared: int
    ) -> bool:
        """Compare forwards of random blocks of rows, neighbours or not, that roll back."""
        places = dict.fromkeys(rows, 0)
        while compared > 0:
            tokens = int(self._chance.integers(1, (most if compared % 2 else min(most, 8)) + 1))
            compared -= tokens
            count = int(self._chance.integers(1, min(tokens, len(rows)) + 1))
            chosen = sorted(self._chance.choice(rows, count, replace=False).tolist())
            batch, parts = list[Token](), list[Floats]()
            for row, size in zip(chosen, self._sizes(tokens, count), strict=True):
                size = min(size, len(alone))
                if places[row] + size > len(alone):  # roll back
                    places[row] = int(self._chance.integers(0, len(alone) - size + 1))
                at = places[row]
                self._context.cut(row, start + at)
                batch += self._tokens(row, start + at, start + at + size)
                parts.append(alone[at : at + size])
                places[row] += size
            found = self._context.forward(batch, (), most=most, hidden=False)
            if found is None or not np.array_equal(found.logits, np.concatenate(parts)):
                return False
        return True

    def _sizes(self, tokens: int, rows: int) -> list[int]:
        """Return random sizes of blocks, one per row, of so many tokens together."""
        cuts = sorted(self._chance.choice(np.arange(1, tokens), rows - 1, replace=False).tolist())
        return [b - a for a, b in zip([0, *cuts], [*cuts, tokens], strict=True)]

    def _read(
        self, row: int, start: int, stop: int, most: int, *, is_wanted: bool = True
    ) -> Floats:
        batch = self._tokens(row, start, stop, is_wanted=is_wanted)
        self._context.cut(row, start)
        found = self._context.forward(batch, (), most=most, hidden=False)
        assert found is not None  # without a preemption nothing stops it
        return found.logits

    def _tokens(self, row: int, start: int, stop: int, *, is_wanted: bool = True) -> list[Token]:
        return [Token(self._line[at], at, row, is_wanted) for at in range(start, stop)]
