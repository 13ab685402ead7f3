"""A side that gets ready for one question: what a mode asks of it, and what it gets back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dragonrt.runtime.drafter import Drafter
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.profiler import DecodeProfile
from dragonrt.runtime.trace import Trace
from dragonrt.wire import messages as wire

Turn = tuple[str, str]
"""An earlier question and its answer."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A side that is ready to draft: its model over its documents, and what getting there took."""

    drafter: Drafter
    sources: tuple[wire.Source, ...]
    prompt_tokens: int
    load_s: float
    prefill_s: float


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

    async def prepare(self, question: str, history: Sequence[Turn], plan: Plan) -> Prepared:
        """Retrieve, load the documents' KV and prefill the question."""
        ...
