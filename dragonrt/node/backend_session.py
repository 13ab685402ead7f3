"""The interface between an answer and the model and documents of its side."""

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
class ForwardResult:
    """The result of a Work: its head's `value`, or an `error`; neither if it was preempted.

    `seconds` is the time of the forward.
    """

    work: Work
    seconds: float
    value: Any = None
    error: Exception | None = None
    preempted: bool = False


Done = Callable[[ForwardResult], None]


class BackendSession(Protocol):
    """One answer's session at a model, which has read its documents and its question."""

    def start(self, work: Work, done: Done) -> None:
        """Do the work beside the loop; `done` is called on the loop, never at once.

        One Work with a span at a time.
        """

    def preempt(self) -> None:
        """Stop the forward under way as soon as possible; without effect when there is none."""

    def close(self) -> None:
        """End the session; `done` is not called again."""


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """A side that has read the question after its documents, and the times it took.

    `evidence` is a hash of the `passages` and their relevances; `decode` returns tokens' text.
    """

    context: BackendSession
    prepared: Prepared
    passages: tuple[Passage, ...]
    prompt_tokens: int
    load_s: float
    prefill_s: float
    evidence: str = "none"
    decode: Callable[[Sequence[int]], str] = lambda tokens: ""


class Prefiller(Protocol):
    """The model, documents and recorder of a side."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def recorder(self) -> Recorder: ...

    @property
    def timeouts(self) -> Timeouts: ...

    @property
    def share_sources(self) -> bool:
        """Whether the other side gets the names of the documents that an answer rests on."""

    @property
    def profile(self) -> DecodeProfile | None:
        """Return the offline decode profile of this side, if it has one."""

    async def prepare(self, question: Question, *, verifies: bool) -> PrefillResult:
        """Retrieve, load the documents' KV and prefill the question.

        A verifier reads blocks in one forward even where their last bits differ.
        """
