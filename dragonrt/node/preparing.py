"""A side that gets ready for one question: what an answer asks of it, and what it gets back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dragonrt.control.profiler import DecodeProfile
from dragonrt.modes.mode import Prepared, Work
from dragonrt.modes.question import Question
from dragonrt.node.citing import Passage
from dragonrt.timeouts import Timeouts
from dragonrt.traces.file import Recorder


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a Work: its head's `value`, or the `error` that kept it from one.

    `seconds` is what the forward took. A forward that was preempted has neither.
    """

    work: Work
    seconds: float
    value: Any = None
    error: Exception | None = None
    preempted: bool = False


class Context(Protocol):
    """One answer's place at a model, which has read its documents and its question."""

    def start(self, work: Work, done: Callable[[Outcome], None]) -> None:
        """Have the work done beside the loop; `done` is called on the loop, never at once.

        One Work with a span at a time.
        """
        ...

    def preempt(self) -> None:
        """Stop the forward under way as soon as possible; without effect when there is none."""
        ...

    def close(self) -> None:
        """The answer is over: nothing is wanted any more, and `done` is not called again."""
        ...


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """A side that has read the question after its documents, and what getting there took.

    `passages` are the chunks that it read, one for each row. `evidence` names them and their
    relevances: with others the text would be another. `decode` gives the text of tokens.
    """

    context: Context
    prepared: Prepared
    passages: tuple[Passage, ...]
    prompt_tokens: int
    load_s: float
    prefill_s: float
    evidence: str = "none"
    decode: Callable[[Sequence[int]], str] = lambda tokens: ""


class Preparer(Protocol):
    """What a side answers with: its model, its documents, its recorder."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def recorder(self) -> Recorder: ...

    @property
    def timeouts(self) -> Timeouts: ...

    @property
    def share_sources(self) -> bool:
        """Whether the other side may hear of the documents that an answer rests on."""
        ...

    @property
    def profile(self) -> DecodeProfile | None:
        """The offline decode profile of this side, if it has one."""
        ...

    async def prepare(self, question: Question, *, verifies: bool) -> PrefillResult:
        """Retrieve, load the documents' KV and prefill the question.

        Who `verifies` reads blocks in one forward even where they have other last bits.
        """
        ...
