"""A conversation with both sides: questions, their answers as text, and the history."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dragonrt.chat.text import TextStream
from dragonrt.language.model import LanguageModel
from dragonrt.runtime.outcome import (
    Answer,
    AnswerPlan,
    Asking,
    Decision,
    Finish,
    OnDecision,
    OnNotice,
    Turn,
)
from dragonrt.wire.messages import Source

P = TypeVar("P", bound=AnswerPlan)
A = TypeVar("A", bound=Answer)

HISTORY = 16
"""Turns kept for the following questions; a model with less room drops the oldest ones."""

SEED_BITS = 32
"""Of a fresh seed: short enough to be typed again."""

OnPiece = Callable[[str, Decision], None]
"""Called with each piece of text and the decision that completed it."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """An answer as a person reads it, with what it cost."""

    question: str
    text: str
    answer: A

    @property
    def sources(self) -> list[tuple[str, Source]]:
        """(side, source) of every document used, the device's first."""
        answer = self.answer
        device = [("device", source) for source in answer.device_sources]
        return device + [("cloud", source) for source in answer.cloud_sources]

    def statistics(self) -> dict[str, Any]:
        """Numbers of this answer; None where there was nothing to measure."""
        answer = self.answer
        times = [decision.time_s for decision in answer.decisions]
        count = len(times)
        wire_bytes = answer.bytes_sent + answer.bytes_received
        return {
            "tokens": count,
            "time_to_first_token_ms": _ms(times[0] - answer.asked_s) if times else None,
            "ms_per_token": _ms((times[-1] - times[0]) / (count - 1)) if count > 1 else None,
            "total_ms": _ms(times[-1] - answer.asked_s) if times else None,
            "bytes_sent": answer.bytes_sent,
            "bytes_received": answer.bytes_received,
            "bytes_per_token": round(wire_bytes / count, 1) if count else None,
            "rtt_ms": _ms(answer.rtt_s),
            **answer.counts.statistics(),
        }

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        plan = self.answer.plan
        return {
            "question": self.question,
            "text": self.text,
            "tokens": self.answer.tokens,
            "carried": [self._carrier(decision) for decision in self.answer.decisions],
            "finish": self.answer.finish.value,
            "seed": plan.seed,
            **plan.settings(),
            "temperature": plan.sampler.temperature,
            "sources": [
                {
                    "side": side,
                    "file": source.name,
                    "title": source.title,
                    "relevance": round(source.relevance, 4),
                }
                for side, source in self.sources
            ],
            "notices": self.answer.notices,
            "statistics": self.statistics(),
        }

    def _carrier(self, decision: Decision) -> dict[str, Any]:
        """Whose documents made a token likely, and which own one drafted it."""
        own = self.answer.device_sources
        known = decision.document is not None and decision.document < len(own)
        return {
            "device_share": round(decision.device_share, 4),
            "document": own[decision.document or 0].name if known else None,
        }


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


@dataclass(slots=True)
class Conversation(Generic[P, A]):
    """Asks one question after another, as `begin` begins an answer; `plan` is the same for all.

    `seed` None draws a fresh one for each answer, which the answer names.
    """

    model: LanguageModel
    plan: P
    begin: Callable[[P, OnDecision, OnNotice], Asking[A]]
    seed: int | None = None
    stops: tuple[str, ...] = ()
    history: list[Turn] = field(default_factory=list)
    _asking: Asking[A] | None = None

    async def ask(
        self,
        question: str,
        on_piece: OnPiece = lambda text, decision: None,
        on_notice: OnNotice = lambda text: None,
    ) -> Reply[A]:
        """Answer a question; DragonError if it cannot be answered."""
        model = self.model
        strings = (*model.prompt.stops, *self.stops)
        plan = self.plan.for_answer(
            seed=self.seed if self.seed is not None else secrets.randbits(SEED_BITS),
            stop_tokens=stop_tokens(model, strings),
        )
        stream = TextStream(model.decode, strings)
        pieces: list[str] = []

        def decide(decision: Decision) -> None:
            if decision.token in plan.stop_tokens or stream.stopped:
                return
            piece = stream.push(decision.token)
            if not pieces:
                piece = piece.lstrip()
            if piece:
                pieces.append(piece)
                on_piece(piece, decision)
            if stream.stopped:
                asking.stop(Finish.STOP)

        asking = self._asking = self.begin(plan, decide, on_notice)
        try:
            answer = await asking.ask(question, self.history)
        finally:
            self._asking = None
        rest = stream.finish()
        if rest and answer.decisions:
            pieces.append(rest)
            on_piece(rest, answer.decisions[-1])
        reply = Reply(question, "".join(pieces).rstrip(), answer)
        self.history = [*self.history, (question, reply.text)][-HISTORY:]
        return reply

    def stop(self) -> None:
        """End the answer under way, if there is one, with the tokens decided so far."""
        if self._asking is not None:
            self._asking.stop()


def stop_tokens(model: LanguageModel, strings: tuple[str, ...]) -> tuple[int, ...]:
    """The model's own stop tokens, and each stop string that is a single token."""
    single = [model.encode(string) for string in strings]
    return (*model.stop_tokens, *(tokens[0] for tokens in single if len(tokens) == 1))
