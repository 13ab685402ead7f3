"""A side that gets ready for one question: what a mode asks of it, and what it gets back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dragonrt.runtime.drafter import Drafter
from dragonrt.runtime.outcome import Turn
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.predictor import Predictor
from dragonrt.runtime.profiler import DecodeProfile
from dragonrt.runtime.trace import Trace
from dragonrt.wire import messages as wire

T = TypeVar("T")
U = TypeVar("U")


class Grounding(Protocol):
    """What every plan says of the documents that an answer rests on, and of its length."""

    @property
    def seed(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def documents(self) -> int: ...
    @property
    def relevance_temperature(self) -> float: ...
    @property
    def reweight_every(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Prepared(Generic[T]):
    """A side whose model has read the question after its documents, and what getting there took."""

    model: T
    sources: tuple[wire.Source, ...]
    prompt_tokens: int
    load_s: float
    prefill_s: float

    def with_model(self, model: U) -> "Prepared[U]":
        """The same with something built on the model."""
        return Prepared(model, self.sources, self.prompt_tokens, self.load_s, self.prefill_s)


class Preparer(Protocol):
    """What a side answers with: its model, its documents, its trace."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def share_sources(self) -> bool:
        """Whether the other side may hear the titles and files of the documents used."""
        ...

    @property
    def profile(self) -> DecodeProfile | None:
        """The offline decode profile of this side, if it has one."""
        ...

    async def prepare(
        self, question: str, history: Sequence[Turn], plan: Plan
    ) -> Prepared[Drafter]:
        """Retrieve, load the documents' KV and prefill the question, to draft."""
        ...

    async def prepare_predictor(
        self, question: str, history: Sequence[Turn], plan: Grounding
    ) -> Prepared[Predictor]:
        """The same, to predict."""
        ...

    async def off_loop(self, job: Callable[[], T]) -> T:
        """The result of `job()`, which may take long and touches nothing that others change."""
        ...


def trace_ready(trace: Trace, session: int, prepared: Prepared[Any], vocabulary: int) -> None:
    """This side has its documents and has read the question."""
    trace.event(
        session,
        "ready",
        load=round(prepared.load_s, 6),
        prefill=round(prepared.prefill_s, 6),
        prompt_tokens=prepared.prompt_tokens,
        vocabulary=vocabulary,
    )
