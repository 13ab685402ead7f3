"""A scripted side without a cloud: it recites an answer to each question it knows."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from typing_extensions import override

from dragonrt.backends.prompt import TOY, PlainPrompt
from dragonrt.errors import DragonError
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings
from dragonrt.modes.mode import Prediction, Prepared
from dragonrt.modes.question import Question, Turn
from dragonrt.node.answers.citing import Passage
from dragonrt.node.answers.model_session import PrefillResult
from dragonrt.node.connections.connector import Connector
from dragonrt.node.process.programs import Device
from dragonrt.node.process.reindexing import IndexingState
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, SimulatedContext, SimulatedPrediction
from dragonrt.timeouts import Timeouts

END = 0
VOCABULARY = 256
BREAKS = b"\x01"
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ByteModel:
    """Tokens are bytes; token 0 ends an answer."""

    prompt: PlainPrompt = field(default_factory=PlainPrompt)
    stop_tokens: tuple[int, ...] = (END,)
    name: str = "bytes"
    context_length: int = 1024

    def with_stops(self, strings: Sequence[str]) -> tuple[int, ...]:
        return (END, *(ord(string) for string in strings if len(string) == 1))

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", errors="replace")


READS_ENGLISH = ByteModel(PlainPrompt(TOY))


@dataclass(frozen=True, slots=True)
class Recitation:
    """Implements SimulatedModel: sure of every token of a text, until it BREAKS."""

    text: bytes

    def predict(self, step: int, prefix_hash: int) -> Prediction:
        if self.text[step : step + 1] == BREAKS:
            raise DragonError("the model broke")
        p = np.zeros(VOCABULARY, dtype=np.float32)
        p[self.text[step] if step < len(self.text) else END] = 1.0
        return SimulatedPrediction(p, 0.0, np.zeros(1, dtype=np.float32))


class HaltingContext(SimulatedContext):
    """Reads at once up to some token, and from there on for a day."""

    def __init__(
        self, model: Recitation, halt_at: int | None, on_close: Callable[[], None]
    ) -> None:
        forwards = itertools.count()
        super().__init__(model, lambda: 0.0 if next(forwards) != halt_at else DAY_S)
        self._on_close = on_close

    @override
    def close(self) -> None:
        super().close()
        self._on_close()


@dataclass(slots=True)
class RecitingSide(SimulatedSide):
    """Each question has its answer; one that has none is an error.

    From token `halt_at` on a forward lasts longer than anybody waits. `on_close` hears when an
    answer wants nothing more of the model.
    """

    answers: dict[str, str] = field(default_factory=dict)
    model: ByteModel = field(default_factory=ByteModel)
    heard: list[tuple[str, tuple[Turn, ...]]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    on_prepare: Callable[[], None] = lambda: None
    on_close: Callable[[], None] = lambda: None
    halt_at: int | None = None
    library: Any = None
    librarian: Any = None
    thread: Any = field(
        default_factory=lambda: SimpleNamespace(answers=0, scheduler=SimpleNamespace(requests=[]))
    )
    following: IndexingState | None = None
    prefix_cache: Counter[str] = field(default_factory=Counter)
    read: str = "What is known."

    @override
    async def prepare(self, question: Question, **how: object) -> PrefillResult:
        self.heard.append((question.prompt, question.history))
        self.questions.append(question)
        self.on_prepare()
        asked = question.prompt + ("" if question.chunk is None else f" {question.chunk}")
        if asked not in self.answers:
            raise DragonError("the question is too long")
        model = Recitation(self.answers[asked].encode())
        context = HaltingContext(model, self.halt_at, self.on_close)
        return PrefillResult(
            context,
            Prepared(files=[0]),
            (Passage("Notes", "notes.txt", 0.5, self.read),),
            3,
            0.0,
            0.0,
        )


async def no_cloud() -> NoReturn:
    raise DragonError("there is no cloud")


def reciting_device(
    answers: dict[str, str], *, halt_at: int | None = None
) -> tuple[Device, RecitingSide]:
    """A device that knows these answers, and its side."""
    timeouts = Timeouts(reach_s=0.0)
    script = Script(0, vocabulary=VOCABULARY)
    side = RecitingSide(
        "device", lambda _: script, timeouts=timeouts, answers=answers, halt_at=halt_at
    )
    connectors = {"cloud": Connector(no_cloud, timeouts)}
    resources = DragonResources(vocabulary=VOCABULARY, timeouts=timeouts)
    stands_in: Any = side  # for the side of a real model
    return Device(stands_in, connectors, DragonSettings(), resources), side
