"""A question after a conversation, how to sample its answer, and how many documents to use."""

from typing import Any, Protocol

from dragonrt.wire.errors import MessageError, Reason
from dragonrt.wire.fields import check_integer, check_number, check_text, check_tuple, text_size
from dragonrt.wire.limits import (
    MAX_64,
    MAX_CONVERSATION,
    MAX_DOCUMENTS,
    MAX_PROMPT,
    MAX_STOP_TOKENS,
    MAX_TOKEN,
    MAX_TOKENS,
    MAX_TURNS,
)


class Question(Protocol):
    """What every message asks that opens a session."""

    @property
    def prompt(self) -> str: ...
    @property
    def history(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def seed(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def stop_tokens(self) -> tuple[int, ...]: ...
    @property
    def documents(self) -> int: ...
    @property
    def relevance_temperature(self) -> float: ...
    @property
    def reweight_every(self) -> int: ...
    @property
    def accepted(self) -> tuple[int, ...]: ...


def check_question(message: Question) -> None:
    """Raises MessageError unless all of it is as it must be."""
    check_text("prompt", message.prompt, MAX_PROMPT)
    _check_history(message.history)
    check_integer("seed", message.seed, 0, MAX_64)
    check_number("temperature", message.temperature, 0, 100)
    check_integer("top_k", message.top_k, 0, MAX_TOKEN)
    check_number("top_p", message.top_p, 0, 1)
    check_number("min_p", message.min_p, 0, 1)
    check_integer("max_tokens", message.max_tokens, 1, MAX_TOKENS)
    check_tokens("stop_tokens", message.stop_tokens, MAX_STOP_TOKENS)
    check_integer("documents", message.documents, 0, MAX_DOCUMENTS)
    check_number("relevance_temperature", message.relevance_temperature, 1e-9, 1e9)
    check_integer("reweight_every", message.reweight_every, 0, MAX_TOKENS)
    check_tokens("accepted", message.accepted, MAX_TOKENS)


def _check_history(history: Any) -> None:
    check_tuple("history", history, MAX_TURNS)
    size = 0
    for turn in history:
        check_tuple("a turn of the history", turn, 2)
        if len(turn) != 2:
            raise MessageError(
                Reason.MALFORMED, "a turn of the history must be a question and its answer"
            )
        for text in turn:
            check_text("a text of the history", text, MAX_PROMPT)
            size += text_size("a text of the history", text)
    if size > MAX_CONVERSATION:
        raise MessageError(
            Reason.MALFORMED, f"the history must be at most {MAX_CONVERSATION} bytes"
        )


def check_tokens(name: str, tokens: Any, limit: int) -> None:
    check_tuple(name, tokens, limit)
    for token in tokens:
        check_integer(f"a token of {name}", token, 0, MAX_TOKEN)
