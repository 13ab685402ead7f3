"""GGUF files keep the contract of a backend, and every bit, with each library and threads."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.backends.backend import Feed, Preemption, Rows
from dragonrt.backends.llama_cpp.backend import load_model
from dragonrt.testing.backend_contract import CHECKS, Subject

from .conftest import file_of

TEXTS, LENGTH, STEPS = 4, 80, 80
CONTEXT = 200


@pytest.fixture(
    scope="module",
    params=[("dragon-draft", 1), ("dragon-draft", 2), ("Q4_K", 2), (bundled.SMOLLM2, 2)],
    ids=str,
)
def subject(request: pytest.FixtureRequest, library: Path, q4_k: Path) -> Subject:
    name, threads = request.param
    file = q4_k if name == "Q4_K" else file_of(name)
    backend = load_model(file, threads=threads, library=library)
    assert backend.info.exact_tokens == (3 if name == "Q4_K" else 63)
    backend.info = replace(backend.info, context_length=CONTEXT)  # the checks fill it
    return Subject(backend)


@pytest.mark.parametrize("check", CHECKS)
def test_contract(subject: Subject, check: Callable[[Subject], None]) -> None:
    assert subject.info.exact_blocks
    check(subject)


class Row:
    """A row that reads one of the texts; `start`: how much of it is its document."""

    def __init__(self, on: Subject, number: int) -> None:
        self.on, self.number, self.start, self.length = on, number, 0, 0
        self.rows: Rows = on.backend.open([on.backend.empty()], LENGTH)

    def moved(self) -> None:
        """Become a row whose document is all that was read."""
        if self.length and not self.start:
            document = self.rows.document(0, self.length)
            self.rows = self.on.backend.open([document], LENGTH)
            self.start = self.length

    def feed(self, text: list[int], size: int, stop: Preemption) -> Feed:
        """Return the next tokens of its text."""
        tokens = text[self.length : self.length + size]
        return Feed(self.rows, tokens, self.length - self.start, True, stop, False)


def test_no_bit_changes_over_random_steps(subject: Subject) -> None:
    """Blocks in shared forwards, rollbacks, moves through states, forwards stopped in between."""
    chance, on = np.random.default_rng(7), subject.backend
    texts = [subject.text(LENGTH, seed) for seed in range(TEXTS)]
    every = np.arange(0, on.info.vocabulary, 7)
    alone = [_alone(subject, number, text, every) for number, text in enumerate(texts)]
    rows = [Row(subject, number) for number in range(TEXTS)]
    stopped = compared = 0
    took_s = 0.0  # the longest forward so far: stops come at any point of one
    for _ in range(STEPS):
        for row in rows:
            if row.length == LENGTH or chance.random() < 0.15:
                row.length = int(chance.integers(row.start, row.length + 1))
            if row.length == LENGTH:
                rows[row.number] = Row(subject, row.number)
            elif chance.random() < 0.05:
                row.moved()
        stop, sizes = Preemption(), [int(chance.integers(1, 7)) for _ in rows]
        feeds = [row.feed(texts[row.number], n, stop) for row, n in zip(rows, sizes, strict=True)]
        timer = threading.Timer(chance.random() * took_s, stop.request)
        if chance.random() < 0.5:
            timer.start()
        began_s = time.perf_counter()
        results = on.forward(feeds)
        timer.cancel()
        took_s = max(took_s, time.perf_counter() - began_s)
        for row, feed, found in zip(rows, feeds, results, strict=True):
            if found is None:
                stopped += 1
                continue
            for logits in found:
                wanted = alone[row.number][row.length]
                np.testing.assert_array_equal(logits.at(every)[0], wanted)
                row.length += 1
            compared += len(feed.tokens)
    assert stopped
    assert compared > STEPS


def _alone(
    on: Subject, number: int, text: list[int], every: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return log-probabilities after each token, each read in a forward of its own."""
    row, found = Row(on, number), []
    for _ in text:
        (logits,) = on.backend.forward([row.feed(text, 1, Preemption())])
        assert logits is not None
        found.append(logits[0].at(every)[0])
        row.length += 1
    return np.stack(found)
