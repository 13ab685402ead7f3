"""What several sessions want read of one model, in forwards that they share.

A reading is a generator: it yields the Extensions that it needs, is sent what they gave, and
returns what they come to (`Reader.reading`, `reading_prompt`). In a Batch each forward takes the
next piece of every reading; others join and leave between two forwards. It belongs to the model's
thread.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from dragonrt.backends.backend import Preempted, RowLogits
from dragonrt.backends.sequence import Extension, ExtensionProgress, advance, extend_together
from dragonrt.errors import DragonError

T = TypeVar("T")

Reading = Generator[Extension, list[RowLogits], T]
"""Yields what is to be read next; ModelError and Preempted are thrown in."""

Done = Callable[[T | BaseException], None]
"""What is called with what a reading returned or raised. It must not raise."""

PIECE = 16
"""Rows times tokens of a forward that take about as long as two forwards of one."""


class Batch:
    """Readings under way. Long ones advance one at a time, a piece in each forward."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, reading: Reading[T], done: Done[T]) -> None:
        """Begin a reading; `done` is called at once if there is nothing to read."""
        task = _Task(reading, done)
        if task.progress is not None:
            self._tasks.append(task)

    def step(self, piece: int = PIECE) -> None:
        """One forward for all readings, then what follows from it.

        A reading that wants more than `piece` rows times tokens gets so many, and of several such
        readings the one that has waited longest: so nobody waits for a long text. What is
        preempted leaves at once.
        """
        ready, long = [], None
        for task in self._tasks:
            progress = task.progress
            if progress is not None and progress.extension.preemption.requested:
                progress.take(None)
                task.go_on()
                continue
            if progress is None:
                continue
            if progress.size <= piece:
                ready.append((task, progress))
            elif long is None:
                long = (task, progress)
        if long is not None:
            ready.append(long)
            self._tasks.remove(long[0])
            self._tasks.append(long[0])
        try:
            if ready:
                advance([(progress, piece) for _, progress in ready])
        except BaseException as error:  # whoever shares a forward that fails is told
            for task, _ in ready:
                task.fail(error)
        for task, _ in ready:
            task.go_on()
        self._tasks = [task for task in self._tasks if task.progress is not None]


class _Task:
    """A reading and how far its newest extension is; without one it is done."""

    def __init__(self, reading: Reading[Any], done: Done[Any]) -> None:
        self._reading = reading
        self._done = done
        self.progress: ExtensionProgress | None = None
        self._resume(None)
        self.go_on()

    def go_on(self) -> None:
        """Give the reading what came of its extension, if that is complete."""
        while self.progress is not None and (result := self.progress.result) is not None:
            self._resume(result)

    def fail(self, error: BaseException) -> None:
        """The forward failed."""
        self._resume(error)

    def _resume(self, result: list[RowLogits] | BaseException | None) -> None:
        self.progress = None
        try:
            if isinstance(result, BaseException):
                extension = self._reading.throw(result)
            elif result is None:
                extension = next(self._reading)
            else:
                extension = self._reading.send(result)
            self.progress = ExtensionProgress(extension)
        except StopIteration as stop:
            self._done(stop.value)
        except (Preempted, DragonError) as error:
            self._done(error.with_traceback(None))  # whose frames would keep the KV for a while
        except BaseException as error:  # it belongs to who wants the reading
            self._done(error)


def read_alone(reading: Reading[T]) -> T:
    """What a reading returns, in forwards of its own. Raises what it raises."""
    try:
        extension = next(reading)
        while True:
            (result,) = extend_together([extension])
            if isinstance(result, Exception):
                extension = reading.throw(result)
            else:
                extension = reading.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
