"""Files keep the contract of a backend and every bit, with each library and number of threads."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dragonrt import bundled
from dragonrt.backends.backend import Feed, Preemption
from dragonrt.backends.llama_cpp.backend import load_model
from dragonrt.errors import ModelError
from dragonrt.testing.backend_contract import CHECKS, Subject

ROWS, LENGTH, STEPS = 5, 120, 120


@pytest.fixture(scope="module", params=[1, 2])
def subject(request: pytest.FixtureRequest, library: Path, file: Path) -> Subject:
    return Subject(load_model(file, threads=request.param, library=library))


@pytest.mark.parametrize("check", CHECKS)
def test_contract(subject: Subject, check: Callable[[Subject], None]) -> None:
    assert subject.info.exact_blocks
    check(subject)


def test_no_bit_changes_over_random_steps(subject: Subject) -> None:
    """Blocks, rollback, rows from states, and forwards that are stopped in between."""
    chance, on = np.random.default_rng(7), subject.backend
    texts = [subject.text(LENGTH, seed) for seed in range(ROWS)]
    every = np.arange(0, on.info.vocabulary, 7)

    def read(row: object, text: list[int], at: int, size: int, stop: Preemption) -> Feed:
        return Feed(row, text[at : at + size], at, True, stop, False)

    alone = []
    for text in texts:
        row = on.open([on.empty()], LENGTH)
        steps = (on.forward([read(row, text, at, 1, Preemption())]) for at in range(LENGTH))
        alone.append(np.concatenate([found[0][0].at(every) for found in steps if found[0]]))
    rows = [on.open([on.empty()], LENGTH) for _ in texts]
    places, stopped, compared = [0] * ROWS, 0, 0
    for _ in range(STEPS):
        for number in range(ROWS):
            if places[number] == LENGTH or chance.random() < 0.15:
                places[number] = int(chance.integers(0, min(places[number] + 1, LENGTH)))
            if places[number] and chance.random() < 0.1:  # its document becomes a new row's
                state = rows[number].document(0, places[number])
                rows[number] = on.open([state], LENGTH)
                texts[number], alone[number] = texts[number][places[number] :], alone[number][places[number] :]
        ...
