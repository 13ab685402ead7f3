"""Rows, one per document, that share their newest tokens (SPEC section 1), and their forwards.

A reading is a generator: it yields Extensions, receives their logits, and returns its result
(`Reader.reading`, `reading_prompt`). In a Batch each forward advances every answer, and prompts by
pieces. Readings join and leave between two forwards. A batch belongs to the model's thread.
"""

from collections.abc import Callable, Generator, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dragonrt.backends.backend import Backend, Document, Feed, Preempted, Preemption, RowLogits
from dragonrt.backends.kv_pool import KvPool
from dragonrt.errors import DragonError, ModelError

LARGEST_BLOCK = 1024
"""Rows times tokens of one forward of one sequence: bounds its memory, and the time until a
preemption is noticed."""

PIECE = 12
"""Rows times tokens of a prompt that take at most as long as two forwards of one row."""

_PER_ROW = 4  # times as much of a prompt for each row of an answer: it costs a third of one

T = TypeVar("T")


class Sequence:
    """`[document][shared tokens]`, one row per document; an extension is kept whole or not."""

    def __init__(
        self,
        backend: Backend,
        documents: Tokens[Document],
        capacity: int,
        pool: KvPool | None = None,
    ) -> None:
        """`capacity` is the number of shared tokens to make room for at first, in `pool`.

        Raises ModelError for no document, or one that is another model's or too long; see KvPool.
        """
        if not documents:
            raise ModelError("a sequence needs at least one document, though it may be empty")
        self.backend = backend
        self.longest_document = max(document.length for document in documents)
        self.length = 0
        self.rows = len(documents)
        self._check_context(self.longest_document)
        capacity = max(1, min(capacity, backend.info.context_length - self.longest_document))
        if pool is not None:
            self._room = pool.room(backend.memory(documents, capacity), documents)
        self.kv = backend.open(documents, capacity)

    def extend(self, tokens: Tokens[int], *, prompt: bool = False) -> RowLogits:
        """Append tokens; return the logits after the last. Raises ModelError: see `check`."""
        return read_alone(once(Extension(self, tokens, False, prompt=prompt)))[0]

    def extend_all(self, tokens: Tokens[int]) -> list[RowLogits]:
        """Append tokens; return the logits after each of them."""
        return read_alone(once(Extension(self, tokens)))

    def truncate(self, length: int) -> None:
        """Keep the first `length` shared tokens. Raises ModelError if there are fewer."""
        if not 0 <= length <= self.length:
            raise ModelError(f"cannot cut a sequence of {self.length} tokens to {length}")
        self.length = length

    def check(self, tokens: Tokens[int]) -> None:
        """Raise ModelError for no tokens, an unknown one, or more than the context holds."""
        vocabulary = self.backend.info.vocabulary
        if not tokens:
            raise ModelError("no tokens to extend the sequence with")
        if min(tokens) < 0 or max(tokens) >= vocabulary:
            raise ModelError(f"tokens must lie between 0 and {vocabulary - 1}")
        self._check_context(self.longest_document + self.length + len(tokens))

    def _check_context(self, tokens: int) -> None:
        limit = self.backend.info.context_length
        if tokens > limit:
            raise ModelError(
                f"document and text of {tokens} tokens exceed the model's context of {limit}: "
                "use shorter documents or a shorter answer"
            )


@dataclass(frozen=True, slots=True)
class Extension:
    """Tokens to append to a sequence. Without `every` only the last one's logits are returned.

    A `prompt` is read faster, with other last bits than the same tokens have in an answer.
    """

    sequence: Sequence
    tokens: Tokens[int]
    every: bool = True
    preemption: Preemption = field(default_factory=Preemption)
    prompt: bool = False


Extended = list[RowLogits] | Preempted | ModelError
"""The result of an Extension; with an exception nothing of its sequence has changed."""

Reading = Generator[Extension, list[RowLogits], T]
"""Yields the next extension; ModelError and Preempted are thrown in."""

Done = Callable[[T | BaseException], None]
"""Receives a reading's result or error. It must not raise."""


class Batch:
    """Readings under way. Prompts and long texts take turns, a piece in each forward."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, reading: Reading[T], done: Done[T]) -> None:
        """Begin a reading; `done` is called at once if there is nothing to read."""
        task = Task(reading, done)
        if not task.is_done:
            self._tasks.append(task)

    def step(self, piece: int = PIECE) -> None:
        """Run one forward for all readings, then resume them. Preempted ones leave at once.

        Prompts and other long texts, whose logits are wanted at their end only, take turns at
        `piece` rows times tokens, or more beside many answers: none waits two forwards longer.
        """
        for task in [each for each in self._tasks if each.extension.preemption.requested]:
            task.take(None)
        tasks = [task for task in self._tasks if not task.is_done]
        feeds = {task: task.feed(LARGEST_BLOCK) for task in tasks if task.extension.every}
        left = max(piece, _PER_ROW * sum(task.part for task in feeds))
        for task in tasks:
            if task not in feeds and left > 0:
                feeds[task] = task.feed(left)
                left -= task.part
        try:
            if feeds:
                advance(feeds)
        except BaseException as error:  # raised in all readings that share the forward
            for task in feeds:
                task.resume(error)
        going_on = (task for task in self._tasks if not task.is_done)
        self._tasks = sorted(going_on, key=feeds.__contains__)  # next time it is the others' turn


class Task:
    """A reading and its newest extension, fed in parts; `part`: rows times tokens of the newest."""

    extension: Extension
    part = 0

    def __init__(self, reading: Reading[Any], done: Done[Any]) -> None:
        self._reading = reading
        self._done = done
        self._logits: list[RowLogits] = []
        self._read = 0
        self._fed = 0
        self.resume(None)

    def feed(self, most: int) -> Feed:
        """Return the part for the next forward: `most` rows times tokens, at least one token."""
        given = self.extension
        self._fed = max(1, most // given.sequence.rows)
        tokens = given.tokens[self._read : self._read + self._fed]
        self.part = len(tokens) * given.sequence.rows
        length = given.sequence.length + self._read
        return Feed(given.sequence.kv, tokens, length, given.every, given.preemption, given.prompt)

    def take(self, logits: Tokens[RowLogits] | None) -> None:
        """Add the result of that forward; None if it was preempted."""
        given = self.extension
        if logits is None:
            self.resume(Preempted())
            return
        self._logits = [*self._logits, *logits] if given.every else [*logits]
        self._read += self._fed
        if self._read >= len(given.tokens):
            given.sequence.length += len(given.tokens)
            self.resume(self._logits)

    def resume(self, result: list[RowLogits] | BaseException | None) -> None:
        """Send the reading a result, or throw an error, and begin the next extension."""
        self.is_done = True
        try:
            if isinstance(result, BaseException):
                extension = self._reading.throw(result)
            else:
                extension = next(self._reading) if result is None else self._reading.send(result)
        except StopIteration as stop:
            self._done(stop.value)
        except (Preempted, DragonError) as error:
            self._done(error.with_traceback(None))  # whose frames would keep the KV for a while
        except BaseException as error:  # passed to the caller of the reading
            self._done(error)
        else:
            self._begin(extension)

    def _begin(self, extension: Extension) -> None:
        sequence = extension.sequence
        try:
            sequence.check(extension.tokens)
            sequence.kv.reserve(sequence.length + len(extension.tokens))
        except Exception as error:  # raised in the reading
            self.resume(error)
        else:
            self.extension, self._logits, self._read, self.is_done = extension, [], 0, False


def advance(feeds: Mapping[Task, Feed]) -> None:
    """Run one forward of a model, in which each reading advances by its feed."""
    backend = next(iter(feeds)).extension.sequence.backend
    for task, logits in zip(feeds, backend.forward(list(feeds.values())), strict=True):
        task.take(logits)


def read_alone(reading: Reading[T]) -> T:
    """Return the result of a reading, in its own forwards. Raises its exception."""
    found: list[T | BaseException] = []
    batch = Batch()
    batch.add(reading, found.append)
    while len(batch):
        batch.step(LARGEST_BLOCK)
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def once(extension: Extension) -> Reading[list[RowLogits]]:
    """Return the reading of one extension."""
    return (yield extension)
