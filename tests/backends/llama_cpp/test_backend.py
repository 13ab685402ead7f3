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
from dragonrt.backends.backend import Document, Feed, Preemption, Rows
from dragonrt.backends.llama_cpp.backend import load_model
from dragonrt.testing.backend_contract import CHECKS, Subject

from .conftest import file_of

TEXTS, LENGTH = 4, 40
STEPS, FEWER_STEPS = 80, 20  # of a toy, of a real model
CONTEXT = 200
THREADS = (1, 2, 4)


@pytest.fixture(
    scope="module",
    params=[*(("dragon-draft", threads) for threads in THREADS), ("Q4_K", 2), (bundled.SMOLLM2, 2)],
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
    """A row that reads a text behind a document; `start`: how much of the text is in it, too."""

    def __init__(self, on: Subject, number: int, document: Document) -> None:
        self.on, self.number, self.document, self.start, self.length = on, number, document, 0, 0
        self.rows: Rows = on.backend.open([document], LENGTH)

    def moved(self) -> None:
        """Become a row whose document is all that was read."""
        if self.length and not self.start:
            length = self.document.length + self.length
            self.rows = self.on.backend.open([self.rows.document(0, length)], LENGTH)
            self.start = self.length

    def feed(self, text: list[int], size: int, stop: Preemption) -> Feed:
        """Return the next tokens of its text."""
        tokens = text[self.length : self.length + size]
        return Feed(self.rows, tokens, self.length - self.start, True, stop, False)


@pytest.mark.parametrize("behind", [0, 230, 900])
def test_no_bit_changes_over_random_steps(subject: Subject, behind: int) -> None:
    """Blocks in shared forwards, rollbacks, moves through states, forwards stopped in between."""
    chance, on = np.random.default_rng(7), subject.backend
    document = _document(subject, behind)
    texts = [subject.text(LENGTH, seed) for seed in range(TEXTS)]
    every = np.arange(0, on.info.vocabulary, 7)
    alone = [_alone(subject, document, text, every) for text in texts]
    rows = [Row(subject, number, document) for number in range(TEXTS)]
    stopped = compared = 0
    took_s = 0.0  # the longest forward so far: stops come at any point of one
    steps = STEPS if on.info.parameters < 2e7 else FEWER_STEPS
    for _ in range(steps):
        for row in rows:
            if row.length == LENGTH or chance.random() < 0.15:
                row.length = int(chance.integers(row.start, row.length + 1))
            if row.length == LENGTH:
                rows[row.number] = Row(subject, row.number, document)
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
                np.testing.assert_array_equal(logits.log_probabilities(every)[0], wanted)
                row.length += 1
            compared += len(feed.tokens)
    assert stopped
    assert compared > steps


@pytest.mark.parametrize("name", ["dragon-draft", bundled.SMOLLM2])
def test_bits_are_equal_at_every_number_of_threads(name: str, library: Path) -> None:
    found = []
    for threads in THREADS:
        on = Subject(load_model(file_of(name), threads=threads, library=library))
        every = np.arange(0, on.info.vocabulary, 7)
        rows = on.backend.open([document := _document(on, 250)], 130)
        prompt = Feed(rows, on.text(130, 1), 0, False, Preemption(), True)
        (read,) = on.backend.forward([prompt])
        assert read is not None
        after = _alone(on, document, on.text(12, 2), every)
        found.append(np.stack([*after, read[0].log_probabilities(every)[0]]))
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def _document(on: Subject, length: int) -> Document:
    """Return a document of random tokens, of any length."""
    rows = on.backend.open([on.backend.empty()], length)
    if length:
        on.backend.forward([Feed(rows, on.text(length, 5), 0, False, Preemption(), True)])
    return rows.document(0, length)


def _alone(
    on: Subject, document: Document, text: list[int], every: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return log-probabilities after each token, each read in a forward of its own."""
    row, found = Row(on, 0, document), []
    for _ in text:
        (logits,) = on.backend.forward([row.feed(text, 1, Preemption())])
        assert logits is not None
        found.append(logits[0].log_probabilities(every)[0])
        row.length += 1
    return np.stack(found)
