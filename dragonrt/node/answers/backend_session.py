"""The interface between an answer and the model and documents of its side."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dragonrt.backends.fair_shares import Client
from dragonrt.modes.entry import Host
from dragonrt.modes.mode import Prepared, Work
from dragonrt.modes.question import Question
from dragonrt.node.answers.citing import Passage
from dragonrt.traces.file import Recorder


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """A Work's result: `value`, `error` or `preempted`; the forward's seconds."""

    work: Work
    seconds: float
    value: Any = None
    error: Exception | None = None
    preempted: bool = False


OnResult = Callable[[ForwardResult], None]


class BackendSession(Protocol):
    """One answer's session at a model, which has read its documents and its question."""

    def start(self, work: Work, done: OnResult) -> None:
        """Do the work, one with a span at a time; `done` is called on the loop, never at once."""

    def preempt(self) -> None:
        """Stop the forward under way as soon as possible; without effect when there is none."""

    def close(self) -> None:
        """End the session; `done` is not called again."""


VALUE_PROBABILITY = 0.2
"""The probability from which on documents hold a value of their own."""


async def no_values(text: Sequence[int]) -> tuple[str, ...]:
    """Return nothing: no document is known to disagree with a text."""
    return ()


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """A side that has read the question; `evidence` is a hash of `passages` and relevances.

    `other_values` returns each number of a text with which its documents disagree, then theirs.
    """

    context: BackendSession
    prepared: Prepared
    passages: tuple[Passage, ...]
    prompt_tokens: int
    load_s: float
    prefill_s: float
    evidence: str = "none"
    decode: Callable[[Sequence[int]], str] = lambda tokens: ""
    other_values: Callable[[Sequence[int]], Awaitable[tuple[str, ...]]] = no_values


class Prefiller(Host, Protocol):
    """The model, documents and recorder of a side."""

    @property
    def recorder(self) -> Recorder:
        """Return the recorder of this side's events."""

    @property
    def share_sources(self) -> bool:
        """Whether the other side gets the names of the documents that an answer rests on."""

    async def prepare(
        self,
        question: Question,
        *,
        verifies: bool,
        late: bool = False,
        client: Client = (),
    ) -> PrefillResult:
        """Find and load the documents and prefill the question; a verifier reads blocks at once.

        If `late`, the question is prefilled with the first forward. `client` asks, and what is
        computed is counted as its own.
        """
