"""Check that a backend keeps the contract of backends: run each of CHECKS on it.

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_backend(check): check(Subject(my_backend()))

A model of any size will do, with a context of 160 tokens or more. If the backend promises
`exact_blocks`, numbers are compared bit by bit, otherwise within `TOLERANCE`. A repeated forward
must give the same bits. With `exact_batches` a row must do so whatever rows share its forward.
"""

import random
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.backends.backend import Backend, Document, Preempted, Preemption, RowLogits
from dragonrt.backends.mixture import RowWeights
from dragonrt.backends.row_set import LARGEST, RowSet
from dragonrt.backends.scheduler import Request, Scheduler
from dragonrt.errors import ModelError

TOLERANCE, LEAST, MOST_COMPARED = 2e-2, -1e3, 4096
LENGTHS = (37, 0, 5, 61)
"""Tokens of the documents."""


class CountedPreemption(Preemption):
    """A flag to stop a forward that sets itself when the forward reads it the `checks`-th time."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self._left = checks

    @property
    @override
    def requested(self) -> bool:
        self._left -= 1
        if self._left <= 0:
            self.request()
        return super().requested


class Subject:
    """The backend under test. `document(n)` returns the KV of a random document of `n` tokens."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.info = backend, backend.info
        self.document = cache(self._document)

    def text(self, length: int, seed: int) -> list[int]:
        chance = random.Random(seed)
        return [chance.randrange(2, self.info.vocabulary) for _ in range(length)]

    def opened(self, lengths: Tokens[int] = LENGTHS, capacity: int = 64) -> RowSet:
        return RowSet(self.backend, [self.document(length) for length in lengths], capacity)

    def same(
        self, found: NDArray[np.float32], wanted: NDArray[np.float32], *, always: bool = False
    ) -> None:
        """Assert equal arrays: bit by bit if `always` or the backend is exact, else nearly."""
        if always or self.info.exact_blocks:
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, atol=TOLERANCE * np.abs(wanted).max())

    def _document(self, length: int) -> Document:
        if not length:
            return self.backend.empty()
        rows = RowSet(self.backend, [self.backend.empty()], length)
        rows.extend(self.text(length, length), prompt=True)
        document: Document = rows.kv.document(0, length)
        return document


def numbers(found: Tokens[RowLogits]) -> NDArray[np.float32]:
    """Return predictions to compare, as [position, row, value]: log-probabilities, hidden state."""
    size = found[0].mixed(np.zeros(len(found[0].hidden()), np.float32)).size
    some = np.arange(0, size, 1 + size // MOST_COMPARED)
    log_p = [np.maximum(each.log_probabilities(some), LEAST) for each in found]
    return np.stack([np.append(p, rows.hidden(), 1) for p, rows in zip(log_p, found, strict=True)])


class Extension(NamedTuple):
    """Tokens to append to `rows`, the KV sequences of an answer, one per document.

    The backend predicts after each token or, if `prompt`, only after the last one.
    """

    rows: RowSet
    tokens: Tokens[int]
    preemption: Preemption | None = None
    prompt: bool = False


Extended = list[RowLogits] | Exception


def extend_together(extensions: Tokens[Extension]) -> list[Extended]:
    """Run extensions in shared forwards; return the predictions of each, or why it failed."""
    found: dict[int, Extended] = {}
    backend = extensions[0].rows.backend
    scheduler = Scheduler(backend.info)
    for number, (rows, tokens, preemption, prompt) in enumerate(extensions):
        done, silent = partial(found.__setitem__, number), len(tokens) if prompt else 0
        stop = preemption or Preemption()
        try:
            scheduler.add(Request(rows, tokens, done, stop, silent, silent, hidden=True))
        except ModelError as error:
            done(error)
    while scheduler.requests:
        batch = scheduler.schedule(LARGEST)
        scheduler.update(batch, backend.forward(batch.feeds))
    return [found[number] for number in range(len(extensions))]


def shapes(on: Subject) -> None:
    """Assert that each appended token gives one normalized distribution per document."""
    info, line = on.info, on.text(9, 1)
    rows = on.opened()
    found = rows.extend_all(line)
    assert len(found) == len(line)
    assert rows.length == len(line)
    last = on.opened().extend(line)
    every = np.arange(info.vocabulary)
    for each in (*found, last):
        log_p = each.log_probabilities(every)
        assert log_p.dtype == each.hidden().dtype == np.float32
        assert log_p.shape == (len(LENGTHS), info.vocabulary)
        assert each.hidden().shape == last.hidden().shape
        assert len(each.hidden()) == len(LENGTHS)
        np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-4)
        np.testing.assert_allclose(np.exp(log_p[:, 5]), each.probability(5), atol=1e-6)
    on.same(numbers([last]), numbers(found[-1:]))


def mixed_is_the_mixture_of_rows(on: Subject) -> None:
    """Assert that `RowLogits.mixed` returns the weighted sum of documents' distributions."""
    (after,) = on.opened().extend_all(on.text(1, 2))
    weights = RowWeights([0.5, -1.0, 2.0, 0.0])
    p = np.exp(after.log_probabilities(np.arange(on.info.vocabulary)).astype(np.float64))
    mixed, copied = after.mixed(weights.logs), after.copy()
    np.testing.assert_allclose(mixed, weights.weights @ p, atol=2e-6)
    assert mixed.dtype == np.float32
    for each in (after, copied):
        np.testing.assert_array_equal(each.mixed(weights.logs), mixed)
    np.testing.assert_array_equal(numbers([copied]), numbers([after]))


def rolled_back_equals_recomputed(on: Subject) -> None:
    """Assert that truncated KV rows predict as rows that never read the removed tokens."""
    start, wrong, right = (on.text(n, seed) for n, seed in ((12, 5), (7, 6), (4, 7)))
    rows = on.opened()
    rows.extend(start)
    rows.extend(wrong)
    rows.truncate(10)
    fresh = on.opened()
    fresh.extend(start)
    fresh.truncate(10)
    found = numbers(rows.extend_all(right))
    on.same(found, numbers(fresh.extend_all(right)), always=True)
    shorter = on.opened()
    shorter.extend(start[:10])
    on.same(found, numbers(shorter.extend_all(right)))


def blocks_rows_and_batches_equal_alone(on: Subject) -> None:
    """Assert that a KV row predicts the same, whatever tokens and rows share its forwards."""
    line = on.text(16, 1)
    alone = np.concatenate(
        [numbers([step]) for step in map(on.opened().extend, [[token] for token in line])]
    )
    for cuts in ([0, 16], [0, 1, 3, 4, 11, 16], [0, 5, 10, 15, 16]):
        rows = on.opened()
        parts = [numbers(rows.extend_all(line[a:b])) for a, b in pairwise(cuts)]
        on.same(np.concatenate(parts), alone)
    for size in (1, 2, 3, 5, 7, 16):
        chosen = [number % len(LENGTHS) for number in range(size, 2 * size)]
        found = numbers(on.opened([LENGTHS[n] for n in chosen]).extend_all(line))
        on.same(found, alone[:, chosen])
    whole = on.opened(LENGTHS, 8).extend_all(line)  # it has to grow

    def extensions() -> list[Extension]:
        sessions = []
        for number, (lengths, tokens) in enumerate([((0,), 1), ((37, 5), 1), ((61, 0, 5), 7)]):
            rows = on.opened(lengths, 16)
            rows.extend(on.text(3 + number, number))
            sessions.append(Extension(rows, on.text(tokens, 10 + number)))
        question = Extension(on.opened((5,)), on.text(30, 9), prompt=True)
        return [*sessions, question, Extension(on.opened(LENGTHS, 8), line)]

    separate = [extend_together([each])[0] for each in extensions()]
    together = extend_together([*reversed(extensions()), *extensions()])
    for one, other in zip(together, [*reversed(separate), *separate], strict=True):
        on.same(numbers(_given(one)), numbers(_given(other)), always=on.info.exact_batches)
    on.same(numbers(_given(separate[-1])), numbers(whole), always=True)


def preempted_leaves_no_trace(on: Subject) -> None:
    """Assert that a preempted extension changes no row: not its own, nor others of its forward."""
    start, dead, right = (on.text(n, seed) for n, seed in ((12, 8), (3, 9), (3, 10)))
    undisturbed = on.opened(capacity=14)
    undisturbed.extend(start)
    wanted = numbers(undisturbed.extend_all(right))
    stopped = 0
    for checks in (1, 2, 3, 4, 50):
        rows, other = (on.opened(capacity=14) for _ in range(2))  # they have to grow
        for each in (rows, other):
            each.extend(start)
        preemption = CountedPreemption(checks)
        dying, going, wrong = extend_together(
            [
                Extension(rows, dead, preemption),
                Extension(other, right),
                Extension(on.opened((0,)), [on.info.vocabulary]),
            ]
        )
        assert isinstance(wrong, ModelError)
        on.same(numbers(_given(going)), wanted, always=on.info.exact_batches)
        if isinstance(dying, Preempted):
            stopped += 1
            rows.truncate(len(start))
            on.same(numbers(rows.extend_all(right)), wanted, always=True)
    assert stopped, "no forward looks at its preemption"


def stored_documents_keep_every_bit(on: Subject) -> None:
    """Assert that a dumped and loaded document predicts the same; incomplete dumps are refused."""
    line, made = on.text(6, 11), [on.document(length) for length in LENGTHS]
    wanted = numbers(RowSet(on.backend, made, 64).extend_all(line))
    stored = [on.backend.load(each.dump()) for each in made]
    assert [each.length for each in stored] == list(LENGTHS)
    on.same(numbers(RowSet(on.backend, stored, 64).extend_all(line)), wanted, always=True)
    for each in ({}, dict(list(made[0].dump().items())[1:])):
        _refuses(on.backend.load, each)


def what_does_not_fit_is_refused(on: Subject) -> None:
    """Assert that wrong tokens, lengths and documents raise ModelError and change nothing."""
    info, rows = on.info, on.opened(capacity=8)
    rows.extend([3, 4])
    room = info.context_length - max(LENGTHS) - 2
    for tokens in ([], [info.vocabulary], [-1], [3] * (room + 1)):
        _refuses(rows.extend, tokens)
    assert rows.length == 2
    rows.extend([3] * room)
    for length in (-1, info.context_length):
        _refuses(rows.truncate, length)
    _refuses(rows.extend, [3])
    _refuses(RowSet, on.backend, [], 8)
    _refuses(on.document, info.context_length + 1)


def _given(result: Extended) -> list[RowLogits]:
    assert isinstance(result, list), result
    return result


def _refuses(call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except ModelError:
        return
    raise AssertionError("accepted")


CHECKS: tuple[Callable[[Subject], None], ...] = (
    shapes,
    mixed_is_the_mixture_of_rows,
    rolled_back_equals_recomputed,
    blocks_rows_and_batches_equal_alone,
    preempted_leaves_no_trace,
    stored_documents_keep_every_bit,
    what_does_not_fit_is_refused,
)
