"""The prompts that pairs of models are trained and measured on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dragonrt.backends.model import LanguageModel

TextKind = Literal["answers", "prose"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens that a text goes on from, and the tokens that end it.

    Answers end where a model says so, prose never: it has a length.
    """

    kind: TextKind
    tokens: tuple[int, ...]
    stops: tuple[int, ...] = ()


def answer_prompt(model: "LanguageModel", text: str) -> Prompt:
    """Return the prompt of an answer."""
    return Prompt("answers", tuple(model.encode(text)), model.answer_stops)


def prose_prompt(model: "LanguageModel", text: str) -> Prompt:
    """Return the prompt of prose."""
    return Prompt("prose", tuple(model.encode(text)))
